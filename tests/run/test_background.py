"""Relier's own asyncio tasks on a worker's loop are hidden from the code of attempts."""

from __future__ import annotations

import ast
import asyncio
import decimal
from pathlib import Path
from typing import Any

import pytest

import relier
from relier import background

SOURCE = Path(relier.__file__ or "").parent
STARTS = {"create_task", "ensure_future", "TaskGroup"}
OTHERS = {"background.py", "outbox/relay/relay.py"}  # where it is done; a process that runs no tasks


def test_no_other_module_starts_asyncio_tasks() -> None:
    """Any task could cancel an asyncio task that it sees, and the worker would end with it."""
    found = [
        f"{file.relative_to(SOURCE)}:{node.lineno}"
        for file in sorted(SOURCE.rglob("*.py"))
        if str(file.relative_to(SOURCE)) not in OTHERS
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in STARTS
    ]
    assert found == [], "use background.start"


@pytest.mark.anyio
async def test_on_loops_that_run_no_attempts_nothing_is_hidden() -> None:
    """On an application's own loop, the code that shuts the loop down must find our tasks, and cancel them."""
    gate = asyncio.Event()
    task = background.start(asyncio.get_running_loop(), gate.wait())
    assert task in asyncio.all_tasks()
    gate.set()
    await task


def test_tasks_left_at_the_end_are_cancelled() -> None:
    left: list[asyncio.Task[Any]] = []

    async def main() -> int:
        left.append(background.start(asyncio.get_running_loop(), asyncio.sleep(60)))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == set()
        return 5

    assert background.run(main()) == 5
    assert left[0].cancelled()


def test_our_tasks_run_in_the_context_their_worker_was_started_in() -> None:
    """Settings that an application makes before its worker starts, such as the precision of decimals, apply in its
    tasks."""

    async def main() -> int:
        background.run_attempts_on(asyncio.get_running_loop())
        decimal.setcontext(decimal.Context(prec=3))  # as the code of an attempt may
        return await background.start(asyncio.get_running_loop(), precision())

    async def precision() -> int:
        return decimal.getcontext().prec

    with decimal.localcontext() as context:
        context.prec = 7
        assert background.run(main()) == 7
