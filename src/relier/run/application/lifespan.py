"""Open what all tasks of a process share, such as a connection pool, when the process starts, and close it at its end.

    @lifespan
    async def resources():
        async with httpx.AsyncClient() as http:
            yield http

The value that the function yields is `ctx.state`. The function runs once in every process that runs tasks: each worker
process, each isolated process, each process of Celery's pool. It can also be named on the command line or in the
environment: `rl worker shop.tasks --lifespan shop.tasks:resources`, `RELIER_LIFESPAN`. If it fails to start, the
process runs no task. When a process is killed, nothing is closed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from relier import background
from relier.arguments.dependencies import overrides
from relier.errors import ConfigurationError, WorkerInitializationError
from relier.import_names import imported
from relier.settings import Settings

log = logging.getLogger("relier.worker")
LEAVE_S = 5.0  # how long the code after the `yield` may take

F = TypeVar("F", bound=Callable[[], Any])
_declared: Callable[[], Any] | None = None


def lifespan(function: F) -> F:
    """Declare the function as the lifespan of every process that imports it. There can be one."""
    global _declared
    _check(function, "@lifespan")
    if _declared is not None and _name(_declared) != _name(function):
        raise ConfigurationError(
            f"{_name(function)} and {_name(_declared)} are both declared as the lifespan, but a process has one; "
            f"declare only one, and enter the other inside it with `async with`"
        )
    _declared = function
    return function


class RunningLifespan:
    """Hold the lifespan of this process. It is entered and left in one asyncio task, as task groups require."""

    def __init__(self) -> None:
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def enter(self, settings: Settings) -> Any:
        """Enter the lifespan of the settings, or the declared one. Return what it yields, or None if there is none."""
        function = imported(settings.lifespan, "RELIER_LIFESPAN") if settings.lifespan else _declared
        if function is None:
            return None
        function = overrides.get(function, function)
        _check(function, "the lifespan")
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[Any] = loop.create_future()
        self._task = background.start(loop, self._hold(function, entered))
        try:
            return await entered
        except Exception as error:
            raise WorkerInitializationError(
                f"the lifespan {_name(function)} failed before its yield ({type(error).__name__}: {error}); the "
                f"process runs no tasks; correct the function, or what it connects to"
            ) from error

    @property
    def entered(self) -> bool:
        """Return whether this process has entered a lifespan."""
        return self._task is not None

    async def leave(self, seconds: float = LEAVE_S) -> None:
        """Run the code after the `yield`, for at most `seconds`. An error in it is logged."""
        self._leave.set()
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=seconds)
            if late:
                log.warning("the lifespan did not end within %g s and was cancelled", seconds)
                self._task.cancel()

    async def _hold(self, function: Callable[[], Any], entered: asyncio.Future[Any]) -> None:
        try:
            async with _manager(function) as state:
                entered.set_result(state)
                await self._leave.wait()
        except BaseException as error:
            if not entered.done():
                entered.set_exception(error)
                return
            if isinstance(error, asyncio.CancelledError):
                raise
            log.exception("the lifespan %s failed after its yield", _name(function))


def _manager(function: Callable[[], Any]) -> AbstractAsyncContextManager[Any]:
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)()
    made = function()
    if isinstance(made, AbstractAsyncContextManager):
        return made
    raise ConfigurationError(
        f"the lifespan {_name(function)} returned {made!r:.60}, which cannot be entered with `async with`; write an "
        f"async function with one yield"
    )


def _check(function: Any, what: str) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{what} takes an async function with one yield, not {function!r:.60}")
    needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    if needed:
        raise ConfigurationError(f"{what} takes a function without parameters, but {_name(function)} has {needed[0]!r}")


def _name(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
