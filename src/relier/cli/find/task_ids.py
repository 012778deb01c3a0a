"""Find tasks by the beginning of their ids, as git finds commits.

No index is ordered by id, so a beginning is searched among the keys of the store, a few thousand at a time. Whole ids
need no search, and dead letters are searched in their own index first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relier.cli.namespace_reads import NamespaceReads
from relier.cli.output import common_beginning, one_line, plural, progress_bar
from relier.cli.session import CommandFailure, Exit, Session
from relier.cli.table import MADE, short_ids
from relier.errors import RelierError
from relier.ledger import keys
from relier.states import State

SHORTEST = 4
AT_ONCE = 5000  # keys per SCAN: about a millisecond of the server's time
MOST_KEYS = 20_000_000
SHOWN = 10
Search = Callable[[Session, str], Iterator[str]]


def full_id(session: Session, given: str, *, dead: bool = False) -> str:
    """Return the id that `given` is, or that begins with it. `dead`: search the dead letters first."""
    return full_ids(session, [given], dead=dead)[0]


def full_ids(session: Session, given: Sequence[str], *, dead: bool = False) -> list[str]:
    """Return the complete ids. A text that begins no id is returned unchanged, and fails when it is read.

    Raises CommandFailure, with the candidates, if several ids have the same beginning.
    """
    left = [word for word in dict.fromkeys(given) if len(word) >= SHORTEST and not MADE.fullmatch(word)]
    left = [word for word in left if not _exists(session, word)]
    found: dict[str, str] = {}
    for search in (_dead_ids, _all_ids) if dead else (_all_ids,):
        found |= _matches(session, [word for word in left if word not in found], search)
    return [found.get(word, word) for word in given]


def _exists(session: Session, task_id: str) -> bool:
    return bool(session.store.command("EXISTS", keys.spell(session.ledger.prefix, "task", task_id), retry=True))


def _matches(session: Session, words: Sequence[str], search: Search) -> dict[str, str]:
    """Return the only id with each beginning. One search serves all of them."""
    candidates: dict[str, set[str]] = {word: set() for word in words}
    for task_id in search(session, common_beginning(words)) if words else ():
        for word in words:
            if task_id.startswith(word):
                candidates[word].add(task_id)
    return {word: _only(session, word, sorted(ids)) for word, ids in candidates.items() if ids}


def _only(session: Session, word: str, ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    described = [_described(session, *pair) for pair in zip(ids[:SHOWN], short_ids(ids), strict=False)]
    more = [f"and {len(ids) - SHOWN:,} more"] if len(ids) > SHOWN else []
    message = f"{plural(len(ids), 'task')} begin with {word!r}; give more characters of the id:"
    raise CommandFailure(message, Exit.PROBLEM, [*described, *more])


def _described(session: Session, task_id: str, shown: str) -> str:
    try:
        record = session.run(session.ledger.get(task_id)).record
    except RelierError:  # expired in the meantime, or cannot be read
        return shown
    return f"{shown}  {record.state.value:9}  {one_line(record.name)}"


def _dead_ids(session: Session, beginning: str) -> Iterator[str]:
    index = keys.spell(session.ledger.prefix, "ended", State.DEAD.value).encode()
    for found in NamespaceReads(session.store, session.ledger).members(index, beginning.encode()):
        yield from (task_id.decode("utf-8", "replace") for task_id in found)


def _all_ids(session: Session, beginning: str) -> Iterator[str]:
    return ids_of("task", session, beginning)


def ids_of(kind: str, session: Session, beginning: str) -> Iterator[str]:
    """Yield the ids with this beginning among the keys of one kind, such as "task"."""
    reads, before = NamespaceReads(session.store, session.ledger), keys.spell(session.ledger.prefix, kind).encode()
    looked = 0
    with progress_bar("Searching", total := reads.size(), always=total > 10 * AT_ONCE) as advance:
        for found in reads.scan_for(before + beginning.encode(), AT_ONCE):
            yield from (key[len(before) :].decode("utf-8", "replace") for key in found)
            advance(AT_ONCE)
            looked += AT_ONCE
            if looked >= MOST_KEYS:
                raise CommandFailure(
                    f"the store has more than {MOST_KEYS:,} keys, too many to search for {beginning!r}; give the whole "
                    f"id",
                    Exit.PROBLEM,
                )
