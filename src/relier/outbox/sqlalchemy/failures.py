"""Report the errors of one SQLAlchemy connection.

SQLAlchemy reports a commit before it happens, and does not report that it failed. It does report every driver error,
but only to listeners of the whole engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod, WeakSet

from sqlalchemy import Connection, event
from sqlalchemy.engine import Dialect, ExceptionContext

_lock = threading.Lock()
_dialects: WeakSet[Dialect] = WeakSet()
_listeners: WeakKeyDictionary[Connection, list[WeakMethod[Any]]] = WeakKeyDictionary()


def on_failure(connection: Connection, listener: Callable[[Connection, BaseException], None]) -> None:
    """Call `listener`, a bound method, with the connection and each of its errors, for as long as the method's object
    lives."""
    with _lock:
        if connection.dialect not in _dialects:
            _dialects.add(connection.dialect)
            event.listen(connection.engine, "handle_error", _failed)
        living = [one for one in _listeners.get(connection, ()) if one() is not None]
        _listeners[connection] = [*living, WeakMethod(listener)]


def _failed(context: ExceptionContext) -> None:
    connection = context.connection
    found = [] if connection is None else _listeners.get(connection, [])
    for one in list(found):
        listener = one()
        if listener is not None:
            listener(connection, context.original_exception)
