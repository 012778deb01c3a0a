"""Replace FastAPI's BackgroundTasks, whose work is lost when the process ends before it is done.

    @app.post("/orders")
    async def place(order: Order, background: DurableTasks):
        background.add_task(send_email, order.email)

The tasks are pushed when the endpoint has returned, before its response is sent. If the endpoint raises, none is
pushed. If a push fails, the client gets the error (responses.py) instead of the response.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, ParamSpec

from fastapi import Depends

from relier.errors import ConfigurationError
from relier.submit.receipt import TaskReceipt
from relier.task import Pushable

P = ParamSpec("P")


class CollectedTasks:
    """Hold the tasks that one request wants pushed. `receipts` is filled when they have been pushed, in order."""

    def __init__(self) -> None:
        self._calls: list[tuple[Pushable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
        self.receipts: list[TaskReceipt[Any]] = []

    def add_task(self, task: Pushable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Push this task when the endpoint has returned. `task` may have options: `send.with_options(delay=60)`."""
        if not isinstance(task, Pushable):
            raise ConfigurationError(
                f"add_task takes a task, not {task!r:.60}; decorate the function with @rl_task, because a worker "
                f"runs it in another process"
            )
        self._calls.append((task, args, kwargs))

    async def push_all(self) -> None:
        for task, args, kwargs in self._calls:
            self.receipts.append(await task.apush(*args, **kwargs))


async def collect_tasks() -> AsyncIterator[CollectedTasks]:
    collected = CollectedTasks()
    yield collected
    await collected.push_all()


DurableTasks = Annotated[CollectedTasks, Depends(collect_tasks, scope="function")]
