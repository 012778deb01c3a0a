"""Find tasks by the beginning of an id.

A whole id is found at once. No index is ordered by id, so the beginning of one is searched among the keys of the store,
some thousands per page. The cursor says where the search goes on; the page follows it while nothing was found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from relier.cli.pipelined.steps import Reading, TriedRead, raw
from relier.errors import InvalidSubmissionError, RelierError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.records import Record, Task

KEYS_AT_ONCE = 5_000  # 1 to 2 ms
SCANS = 4  # one round trip each
MOST_FOUND = 50


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hold the results of a search. `complete`: whether every key has been checked. `cursor`: where to continue."""

    records: Sequence[Record]
    cursor: str
    complete: bool


def by_prefix(ledger: Ledger, prefix: str, cursor: str) -> Reading[SearchResult]:
    """Find tasks whose ids begin with a text, by at most five round trips."""
    if cursor and not re.fullmatch(r"[0-9]{1,20}", cursor):
        raise InvalidSubmissionError(f"{cursor!r:.60} is not a cursor; follow the link to the next page instead")
    try:
        exact = ledger.get(prefix)
    except RelierError:  # no text that could be the beginning of an id
        return SearchResult((), "", complete=True)
    begins = keys.spell(ledger.prefix, "task")
    pattern = keys.matching((begins + prefix).encode())
    at, found = cursor or "0", dict[str, None]()
    for nth in range(SCANS):
        scan = raw("SCAN", at, "MATCH", pattern, "COUNT", KEYS_AT_ONCE)
        (after, page), *whole = yield [scan] if nth else [scan, TriedRead(exact)]
        if whole and isinstance(whole[0], Task):
            return SearchResult((whole[0].record,), "", complete=True)
        found |= dict.fromkeys(key.decode("utf-8", "replace").removeprefix(begins) for key in page)
        at = after.decode()
        if at == "0" or len(found) >= MOST_FOUND:
            break
    answers = yield [TriedRead(ledger.get(task_id)) for task_id in list(found)[:MOST_FOUND]]
    records = [answer.record for answer in answers if isinstance(answer, Task)]
    return SearchResult(records, "" if at == "0" else at, at == "0" and len(found) <= MOST_FOUND)
