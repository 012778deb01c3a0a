"""The moves of the ledger: one verb, one method, one Lua file. A method checks its input and returns a `Call`.

    answer = await store.run(ledger.submit([Submission(id=…, name=…, payload=…)]))

Every move is safe to repeat: a second run of the same call changes nothing and returns the same answer, so a caller
that got no reply sends it again. Finishing moves take a `Lease`; an attempt that lost its lease gets `stale`.

Moves of nodes are in moves/node.py; those of workers in moves/worker.py; moves of sweeps and operators, and locks, in
moves/operator.py; repairs in moves/repair.py; limits at run time in moves/limit.py; schedules in moves/schedule.py;
batches in moves/batch.py; events in moves/event.py; outcomes in moves/outcome.py. Submitting and reading are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from relier.errors import InvalidSubmissionError, PushIndeterminate
from relier.ledger import defaults, keys, replies
from relier.ledger.checks import check_fits, check_number, check_submission, check_word
from relier.ledger.events.writing import EventWriting
from relier.ledger.moves.base import durability_flag
from relier.ledger.moves.batch import BatchMoves
from relier.ledger.moves.event import EventMoves
from relier.ledger.moves.limit import LimitMoves
from relier.ledger.moves.node import NodeMoves
from relier.ledger.moves.operator import OperatorMoves
from relier.ledger.moves.outcome import OutcomeMoves
from relier.ledger.moves.repair import RepairMoves
from relier.ledger.moves.schedule import ScheduleMoves
from relier.ledger.moves.worker import WorkerMoves
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.ledger.records import Accepted, Admission, Page, Submission, Task, new_mark
from relier.ledger.stats import Stats
from relier.settings import Settings
from relier.store.call import Arg, Call, Durability
from relier.store.scripts import Scripts

CHUNK_TASKS = 100
CHUNK_BYTES = 1024 * 1024
OWNED_PAGE = 1000  # as in owned.lua
INDEXES = ("due", "ready", "lane", "owned", "ended")


LUA = Path(__file__).parent / "lua"


def load_scripts(
    writing: EventWriting | None = None, counting: OutcomeCounting | None = None, /, **replaced: str
) -> Scripts:
    """Load all scripts of the ledger. `writing`: which events they write. `counting`: whether they count outcomes.
    `replaced` substitutes some scripts: the proof runs them with its own clock. Clients of a process share what was
    loaded with the same options."""
    swaps = tuple((name.replace("__", "/"), source) for name, source in sorted(replaced.items()))
    return _loaded(writing or EventWriting(), counting or OutcomeCounting(), swaps)


@lru_cache(maxsize=8)
def _loaded(writing: EventWriting, counting: OutcomeCounting, swaps: tuple[tuple[str, str], ...]) -> Scripts:
    chosen = writing.spelled() | counting.spelled()
    return Scripts(LUA, keys.SPELLED | defaults.SPELLED | chosen, replace=dict(swaps))


def scripts_of(settings: Settings) -> Scripts:
    """Load the scripts as the settings say."""
    return load_scripts(EventWriting(settings.events, settings.events_keep), OutcomeCounting(settings.slo == "on"))


class Ledger(
    WorkerMoves,
    NodeMoves,
    OperatorMoves,
    RepairMoves,
    LimitMoves,
    ScheduleMoves,
    BatchMoves,
    EventMoves,
    OutcomeMoves,
):
    """The moves of one namespace."""

    def open(self, remembered: str = "", fresh: str = "") -> Call[str]:
        """Mark an empty namespace with this layout and a birth mark. Return the mark.

        Raises LayoutError if the namespace has a different layout, and ShardsError if it was created under a different
        number of shards, which the mark records. `remembered`: the mark that the caller knows. If the
        marks differ, the store was emptied or replaced, and the script records that for `rl doctor`. `fresh`: the
        beginning of a new mark, random by default.
        """
        args: list[Arg] = [keys.LAYOUT, (fresh or new_mark()) + self._mark_suffix, remembered]
        return self._call("open", args, partial(replies.opened, self._namespace, self._shards))

    def submit(
        self,
        tasks: Sequence[Submission],
        admission: Admission | None = None,
        durability: Durability = Durability.MEMORY,
    ) -> Call[list[Accepted]]:
        """Accept all tasks or, over a limit, none. At most 100 tasks or 1 MiB per call: see `chunks`."""
        guard = admission or Admission()
        if not tasks or len(tasks) > CHUNK_TASKS:
            raise InvalidSubmissionError(f"one submit takes 1 to {CHUNK_TASKS} tasks, not {len(tasks)}; use chunks()")
        for task in tasks:
            check_submission(task, self._max_bytes)
        for what in ("max_depth", "max_bytes", "extra"):
            check_number(what, getattr(guard, what))
        for limit in guard.limits:
            check_fits(limit, len(tasks), guard.extra)
        args: list[Arg] = [
            durability_flag(durability),
            guard.max_depth,
            guard.max_bytes,
            guard.extra,
            len(guard.limits),
        ]
        for limit in guard.limits:
            args += (limit.name, limit.interval_us, limit.tolerance_us, limit.weight)
        args.append(len(tasks))
        ids = [task.id for task in tasks]
        parse = partial(replies.accepted, ids)
        for task in tasks:
            args += task.args()
        call: Call[list[Accepted]] = self._call("submit", args, parse, durability)
        return call.when_indeterminate(lambda: PushIndeterminate(ids[0], others=tuple(ids[1:])))

    @staticmethod
    def chunks(tasks: Iterable[Submission]) -> Iterator[list[Submission]]:
        """Split a long list, so that no single script blocks the store for long."""
        chunk: list[Submission] = []
        size = 0
        for task in tasks:
            if chunk and (len(chunk) == CHUNK_TASKS or size + len(task.payload) > CHUNK_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append(task)
            size += len(task.payload)
        if chunk:
            yield chunk

    def get(self, task_id: str, born: str = "") -> Call[Task]:
        """Read one task completely. Raises TaskNotFoundError or CorruptRecordError.

        `born`: the birth mark under which the task was accepted, if known. Raises StoreEmptiedError if the task is gone
        and the store has a different mark.
        """
        check_word("the task id", task_id)
        return self._call("get", [task_id], partial(replies.task, task_id, born))

    def steps(self, task_id: str, cursor: str = "0") -> Call[tuple[dict[str, bytes], str]]:
        """Read steps of a task from a cursor. Return them and the next cursor, '' at the end.

        A `get` or a claim that could not return all steps has the first cursor in `steps_left`.
        """
        check_word("the task id", task_id)
        return self._call("steps", [task_id, cursor], replies.steps)

    def list(
        self, index: str, of: str = "", *, cursor: str | None = None, most: int = 100, name: str = ""
    ) -> Call[Page]:
        """Read one page of an index: due, ready (of a queue), lane, owned (of a worker) or ended (of a state).

        A page has LIST_PAGE records at the most, so that no read blocks the store for long: follow its cursor.
        """
        if index not in INDEXES:
            raise InvalidSubmissionError(f"unknown index {index!r}; use one of {', '.join(INDEXES)}")
        check_number("most", most, 1, 1000)
        return self._call("list", [index, of, cursor or "", most, name], replies.page)

    def owned(self, worker_id: str, first: int = 0) -> Call[dict[str, str]]:
        """Read id -> fence of the tasks a worker holds, OWNED_PAGE of them from `first` on."""
        return self._call("owned", [worker_id, first], replies.owned)

    def stats(self, cursor: str = "") -> Call[Stats]:
        """Read counters, queues and nodes at one moment. This is one page; `read_stats` reads all."""
        queues, _, nodes = (cursor or "0 0").partition(" ")
        return self._call("stats", [queues, nodes], replies.stats)

    def ring_outbox(self) -> Call[None]:
        """Wake a relay after rows were committed to an outbox."""
        return self._call("ring_outbox", [], lambda _: None)

    @property
    def outbox_bell(self) -> str:
        """The key that relays block on."""
        return keys.spell(self.prefix, "outbox")

    def bell(self, queue: str) -> str:
        """Return the key that workers block on while a queue is empty."""
        return keys.spell(self.prefix, "bell", queue)
