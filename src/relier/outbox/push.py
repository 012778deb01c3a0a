"""Which outbox a push goes into, by what it is given: a session or connection of SQLAlchemy, a database of Django."""

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
    """Puts rows into a transaction of the user's."""

    def write(self, where: Any, rows: Sequence[NewRow]) -> None: ...

    async def awrite(self, where: Any, rows: Sequence[NewRow]) -> None: ...


_outboxes: set[Writer] = set()  # of SQLAlchemy; Django has one


def use_outbox(outbox: Writer) -> None:
    """`push_in` finds it, as long as it is the only one."""
    _outboxes.add(outbox)


def forget_outbox(outbox: Writer) -> None:
    """`push_in` does not find it any more."""
    _outboxes.discard(outbox)


def known_outboxes() -> list[Writer]:
    """Those of SQLAlchemy."""
    return [*_outboxes]


def outbox_of(where: Any) -> Writer:
    """The outbox for this session, connection or database."""
    if where is None or isinstance(where, str) or _is_from("django", where):
        return _django_outbox(where)
    if not _is_from("sqlalchemy", where):
        raise ConfigurationError(
            f"push_in takes a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, or the name of a "
            f"Django database, not {where!r:.60}; nothing was written"
        )
    if len(_outboxes) == 1:
        return next(iter(_outboxes))
    found = f"there are {len(_outboxes)}: say which, with `outbox.add(session, task, …)`"
    raise ConfigurationError(
        f"push_in needs the one outbox of this process, and "
        f"{found if len(_outboxes) else 'there is none: make one with `Outbox(Base.metadata)`'}; nothing was written"
    )


@contextmanager
def set_in_context(current: ContextVar[T], where: T) -> Iterator[None]:
    """`current` is `where` inside. Refuses to end where it did not begin: then the block between has not seen it."""
    token = current.set(where)
    try:
        yield
    except BaseException:
        with suppress(ValueError):  # what was raised says more
            current.reset(token)
        raise
    try:
        current.reset(token)
    except ValueError:
        raise ConfigurationError(
            "`with outbox.using(…)` ends in another context than it began in, as in a `def` dependency of FastAPI, "
            "which runs in a thread pool: the code between has not seen it, and what it sent was not part of the "
            "transaction; make the dependency `async def`, or write the `with` around the code that sends"
        ) from None


def _django_outbox(where: Any) -> Writer:
    try:
        writer: Writer = import_module("relier.django.outbox").outbox
    except Exception as error:  # Django is not installed, or not set up, or does not know our app: each its own class
        raise ConfigurationError(
            f"push_in with {where!r:.60} is for a Django project, and there is none here ({type(error).__name__}: "
            f"{error}); pass a session or connection of SQLAlchemy, or add 'relier.django' to INSTALLED_APPS and call "
            f"django.setup() first; nothing was written"
        ) from error
    return writer


def _is_from(package: str, value: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)
