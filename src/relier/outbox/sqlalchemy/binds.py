"""Which database a SQLAlchemy session means: by its bind, or by its binds, `Session(binds={Base: engine})`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session

from relier.errors import ConfigurationError


def bind_arguments_for(session: Session, table: Table) -> dict[str, Any]:
    """Arguments for `get_bind` that lead to the database of a table. SQLAlchemy's own answer goes first; it has none
    for a table that no class is mapped to, where only classes are bound. Then the table is where its MetaData is."""
    try:
        session.get_bind(clause=table)
    except UnboundExecutionError as error:
        near = {bind for key, bind in binds_of(session).items() if getattr(key, "metadata", None) is table.metadata}
        if len(near) == 1:
            return {"bind": near.pop()}
        raise ConfigurationError(
            f"the session's binds do not say where table {table.fullname} is ({len(near)} of them are of its "
            f"MetaData); nothing was written; add it to them: Session(binds={{…, outbox.table: engine}})"
        ) from error
    return {"clause": table}


def databases_of(session: Session) -> set[Engine | Connection]:
    """All it may lead to; several engines of one database, too: each has its own transaction. What a `get_bind` of the
    user's own does is not seen."""
    return {bind for bind in (session.bind, *binds_of(session).values()) if bind is not None}


def sole_bind_arguments(session: Session) -> dict[str, Any]:
    """Arguments for `get_bind` that lead to the one database of a session."""
    if session.bind is not None:
        return {}
    found = databases_of(session)
    if len(found) == 1:
        return {"bind": found.pop()}
    try:
        session.get_bind()  # one of the user's own may know
    except UnboundExecutionError as error:
        raise ConfigurationError(
            "the session is bound to no database; nothing was written; give it one: Session(engine)"
        ) from error
    return {}


def binds_of(session: Session) -> dict[Any, Engine | Connection]:
    """The second name is the one before SQLAlchemy 2.1."""
    found: dict[Any, Engine | Connection] = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})
    return found
