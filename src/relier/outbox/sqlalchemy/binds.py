"""Find the database of a SQLAlchemy session: by its `bind`, or by its `binds`, as in `Session(binds={Base:
engine})`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session

from relier.errors import ConfigurationError


def bind_arguments_for(session: Session, table: Table) -> dict[str, Any]:
    """Return the arguments of `get_bind` that select the database of a table.

    SQLAlchemy's own answer is preferred. If only classes are bound, SQLAlchemy has no answer for a table without a
    mapped class. In that case, use the bind of another table or class of the same MetaData.
    """
    try:
        session.get_bind(clause=table)
    except UnboundExecutionError as error:
        near = {bind for key, bind in binds_of(session).items() if getattr(key, "metadata", None) is table.metadata}
        if len(near) == 1:
            return {"bind": near.pop()}
        found = f"tables of the same MetaData are in {len(near)} databases" if near else "it has none for its MetaData"
        raise ConfigurationError(
            f"the session's binds do not say where table {table.fullname} is: {found}; nothing was written; "
            f"add the table: Session(binds={{…, outbox.table: engine}})"
        ) from error
    return {"clause": table}


def databases_of(session: Session) -> set[Engine | Connection]:
    """Return every bind of a session. Two engines of one database count as two: each has its own transaction. Binds
    that a user's own `get_bind` chooses are not seen."""
    return {bind for bind in (session.bind, *binds_of(session).values()) if bind is not None}


def sole_bind_arguments(session: Session) -> dict[str, Any]:
    """Return the arguments of `get_bind` that select the only database of a session."""
    if session.bind is not None:
        return {}
    found = databases_of(session)
    if len(found) == 1:
        return {"bind": found.pop()}
    try:
        session.get_bind()  # a user's own `get_bind` may know
    except UnboundExecutionError as error:
        raise ConfigurationError(
            "the session is not bound to a database; nothing was written; bind it: Session(engine)"
        ) from error
    return {}


def binds_of(session: Session) -> dict[Any, Engine | Connection]:
    """Return a session's binds. SQLAlchemy before 2.1 has them under the second name."""
    found: dict[Any, Engine | Connection] = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})
    return found


def acquired_by(session: Session, bind: Engine | Connection) -> Connection | None:
    """Return the connection that a session's transaction already holds for a bind, if any."""
    whole = session.get_transaction()
    found = None if whole is None else whole._connections.get(bind)  # noqa: SLF001 - public since SQLAlchemy 2.1.7
    return None if found is None else found[0]
