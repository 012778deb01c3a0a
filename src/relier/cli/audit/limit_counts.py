"""Check the counts of limits at run time: tasks that wait in the lanes of each queue, and live tasks of each key.

Lanes are read page by page while tasks come and go. So a difference is a finding only if three readings show the same
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from relier.cli.audit.findings import Finding
from relier.errors import StoreReplyError
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.pages import read_lanes
from relier.store.sync_store import SyncStore

LOOKS = 3
Differences = dict[tuple[str, str], int]


def miscounted(store: SyncStore, ledger: Ledger, wait: Callable[[], None]) -> list[Finding]:
    """Return a finding for each count that is wrong in the same way in every reading."""
    try:
        wrong = _differences(store, ledger)
        for _ in range(LOOKS - 1):
            if not wrong:
                return []
            wait()
            again = _differences(store, ledger)
            wrong = {name: by for name, by in wrong.items() if again.get(name) == by}
    except StoreReplyError:  # a key has the wrong type, which is a separate finding
        return []
    return [_finding(ledger, kind, name, by) for (kind, name), by in sorted(wrong.items())]


def _differences(store: SyncStore, ledger: Ledger) -> Differences:
    """Return by how much each count exceeds the tasks that can be found. A count of live tasks may be higher: lanes and
    slots do not hold tasks that are scheduled, or the heads of lanes."""
    waiting: Counter[str] = Counter()
    at_least: Counter[str] = Counter()
    for lane in {lane.name: lane for lane in read_lanes(store.run, ledger)}.values():
        waiting[lane.queue] += lane.waiting
        at_least.update(dict.fromkeys(lane.keys, lane.waiting))
    counted = _hash(store, keys.spell(ledger.prefix, "waiting"))
    wrong = {("waiting", queue): counted[queue] - waiting[queue] for queue in counted | waiting}
    live = _hash(store, keys.spell(ledger.prefix, "limited"))
    wrong |= {("limited", key): min(0, live[key] - at_least[key]) for key in live | at_least}
    return {name: by for name, by in wrong.items() if by}


def _hash(store: SyncStore, key: str) -> Counter[str]:
    flat = store.command("HGETALL", key, retry=True)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return Counter({name.decode("utf-8", "replace"): int(n) if n.isdigit() else -1 for name, n in pairs})


def _finding(ledger: Ledger, kind: str, name: str, by: int) -> Finding:
    what = f"tasks that wait behind limits in queue {name!r}" if kind == "waiting" else f"live tasks of limit {name!r}"
    return Finding(
        "limits_miscounted",
        keys.spell(ledger.prefix, kind),
        f"The count of {what} is off by {by:+,}.",
        "Something deleted or restored keys. Nothing is lost by it: only lists and depth limits use the count.",
    )
