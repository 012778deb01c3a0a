"""Close unusable database connections of Django around every attempt, as Django does around every request.

Without this, one broken connection would fail every later task of its thread. Where Django is not used, this costs
nothing: Django is never imported here, only found.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def django_is_used() -> bool:
    """Return whether this process has imported Django's database layer and configured it."""
    return "django.db" in sys.modules and bool(sys.modules["django.conf"].settings.configured)


def with_fresh_connections(call: Callable[..., T], *args: Any) -> T:
    """Call a function in this thread, between two checks of the thread's connections."""
    if not django_is_used():
        return call(*args)
    _close_old_connections()
    try:
        return call(*args)
    finally:
        _close_old_connections()


async def with_fresh_connections_async(call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await a function between two checks of the connections of the thread that Django's async methods use."""
    check = import_module("asgiref.sync").sync_to_async(_close_old_connections, thread_sensitive=True)
    await check()
    try:
        return await call(*args)
    finally:
        await check()


def _close_old_connections() -> None:
    sys.modules["django.db"].close_old_connections()
