"""Find the outbox for a push: by a session or connection of SQLAlchemy, or by the name of a Django database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Protocol, TypeVar

from relier.errors import ConfigurationError
from relier.outbox.row import NewRow

T = TypeVar("T")

DEFAULT_TABLE = "relier_outbox"


class Writer(Protocol):
    """Writes rows in the user's transaction."""

    def write(self, where: Any, rows: Sequence[NewRow]) -> None: ...

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None: ...


_outboxes: set[Writer] = set()  # of SQLAlchemy; Django has exactly one


def use_outbox(outbox: Writer) -> None:
    """Register an outbox. `push_in` uses it if it is the only one."""
    _outboxes.add(outbox)


def forget_outbox(outbox: Writer) -> None:
    """Undo `use_outbox`."""
    _outboxes.discard(outbox)


def known_outboxes() -> list[Writer]:
    """Return the registered outboxes of SQLAlchemy."""
    return [*_outboxes]


def outbox_of(where: Any) -> Writer:
    """Return the outbox for a session, a connection or a Django database."""
    if where is None or isinstance(where, str) or _is_from("django", where):
        return _django_outbox(where)
    if not _is_from("sqlalchemy", where):
        raise ConfigurationError(
            f"push_in takes a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, or the name of a "
            f"Django database, not {where!r:.60}; nothing was written"
        )
    if len(_outboxes) == 1:
        return next(iter(_outboxes))
    if _outboxes:
        raise ConfigurationError(
            f"this process has {len(_outboxes)} outboxes, so push_in cannot choose one; nothing was written; say "
            f"which: `outbox.add(session, task, …)`"
        )
    raise ConfigurationError(
        "this process has no outbox for push_in; nothing was written; create one: `Outbox(Base.metadata)`"
    )


@contextmanager
def set_in_context(current: ContextVar[T], where: T) -> Iterator[None]:
    """Set the context variable `current` to `where` inside the block.

    Raise ConfigurationError if the block ends in a different context from the one it began in. In that case, the code
    inside did not see the value.
    """
    token = current.set(where)
    try:
        yield
    except BaseException:
        with suppress(ValueError):  # the error being raised is the more useful one
            current.reset(token)
        raise
    try:
        current.reset(token)
    except ValueError:
        raise ConfigurationError(
            "`with outbox.using(…)` ended in a different context from the one it began in, as happens in a `def` "
            "dependency of FastAPI, which runs in a thread pool: the code inside did not see the outbox, and its "
            "messages were not part of the transaction; make the dependency `async def`, or put the `with` around the "
            "code that sends"
        ) from None


def _django_outbox(where: Any) -> Writer:
    try:
        writer: Writer = import_module("relier.django.outbox").outbox
    except Exception as error:  # Django is missing, not set up, or does not know our app: three classes
        raise ConfigurationError(
            f"push_in with {where!r:.60} is for a Django project, and there is none here ({type(error).__name__}: "
            f"{error}); nothing was written; pass a session or connection of SQLAlchemy, or add 'relier.django' to "
            f"INSTALLED_APPS and call django.setup() first"
        ) from error
    return writer


def _is_from(package: str, value: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)
