"""Find a workflow by the beginning of its id. `rl batches` shows ids in this short form."""

from __future__ import annotations

from relier.cli.find.task_ids import SHORTEST, SHOWN, ids_of
from relier.cli.output import one_line, plural
from relier.cli.session import CommandFailure, Exit, Session
from relier.cli.table import MADE, short_ids
from relier.errors import BatchNotFoundError
from relier.ledger.batches.records import BatchRecord


def full_batch_id(session: Session, given: str) -> str:
    """Return the id of the workflow that `given` is, or that begins with it.

    Inner batches count only if no workflow has this beginning. A text that begins no id is returned unchanged, and
    fails when it is read. Raises CommandFailure, with the candidates, if several ids have the same beginning.
    """
    if len(given) < SHORTEST or MADE.fullmatch(given) or _read(session, given):
        return given
    read = (_read(session, batch_id) for batch_id in sorted(set(ids_of("batch", session, given))))
    found = [batch for batch in read if batch is not None]
    found = [batch for batch in found if not batch.parent] or found
    if len(found) > 1:
        shown = short_ids([batch.id for batch in found])
        lines = [f"{short}  {one_line(batch.name)}" for short, batch in zip(shown, found, strict=True)][:SHOWN]
        more = [f"and {len(found) - SHOWN:,} more"] if len(found) > SHOWN else []
        message = f"{plural(len(found), 'batch', 'batches')} begin with {given!r}; give more of the id:"
        raise CommandFailure(message, Exit.PROBLEM, [*lines, *more])
    return found[0].id if found else given


def _read(session: Session, batch_id: str) -> BatchRecord | None:
    try:
        return session.run(session.ledger.batch(batch_id))
    except BatchNotFoundError:
        return None
