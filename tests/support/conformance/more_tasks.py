"""Another module of tasks. Some have the names of those in tasks.py, and share nothing with them."""

from __future__ import annotations

from relier import rl_task


@rl_task
async def who_am_i() -> str:
    return "more_tasks"
