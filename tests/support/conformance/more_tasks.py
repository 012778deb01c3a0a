"""Another module of tasks. Some have the same names as tasks in tasks.py, but nothing else in common."""

from __future__ import annotations

from relier import rl_task


@rl_task
async def who_am_i() -> str:
    return "more_tasks"
