"""Plan a `push_many`, without IO: decide what to submit next, and collect the answers.

A bulk is the calls of one `push_many`. A bulk of any length is pushed in bounded pieces. Every call is checked and
counted against the limits before the first call is sent, so a mistake in the last call means that nothing is pushed.
The check keeps only the first 8 MiB of encoded submissions. The others are encoded again
when their piece is sent, so memory grows with the calls and the receipts, not with the payloads.

A bulk is admitted or refused as a whole. Chunks are submitted one by one. The first chunk that contains a new task is
charged for itself and for all later chunks, which are then submitted without being charged again.

Each task has its id from the start. Pushing the same calls again under the same ids makes no second task, so a bulk
whose answer was lost can be repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from relier.errors import (
    ConfigurationError,
    InvalidSubmissionError,
    PartialPushError,
    PushIndeterminate,
    RelierError,
    StoreError,
)
from relier.ledger.checks import check_submission
from relier.ledger.ledger import Ledger
from relier.ledger.records import Accepted, Admission, Submission, new_task_id
from relier.options import PushOptions
from relier.submit.client import Client
from relier.submit.guards import NOTHING
from relier.submit.push import CallArguments, bytes_held, is_duplicate, level_of, refusal_in, submission_of

if TYPE_CHECKING:
    from relier.task import RlTask

BLOCK_CALLS = 200  # calls checked at once; an event loop may do other work between two blocks
PIECE_CHUNKS, PIECE_BYTES = 20, 2 * 1024 * 1024  # per round trip: about 2,000 tasks
KEPT_BYTES = 8 * 1024 * 1024
OBJECT_BYTES = 1024  # roughly the size of a Submission without its payload
MOST_HELD = 2**53


class Pushed(NamedTuple):
    """Represent one accepted task of a bulk."""

    id: str
    duplicate: bool


def blocks(calls: Iterable[CallArguments]) -> Iterator[list[CallArguments]]:
    """Yield the calls of a bulk in blocks."""
    rest = iter(calls)
    while block := list(islice(rest, BLOCK_CALLS)):
        yield block


class Bulk:
    """Plan one bulk. First `add` all calls. Then submit what `next_piece` returns and call `answered`, until done."""

    def __init__(
        self, task: RlTask[Any, Any], push: PushOptions, client: Client, task_ids: Iterable[str] | None = None
    ) -> None:
        if push.task_id is not None or push.idempotency_key is not None:
            raise ConfigurationError(
                "task_id and idempotency_key are for one task, but push_many pushes one task for each call; nothing "
                "was pushed; pass ids as push_many(calls, task_ids=[…]), one for each call; for keys, declare the task "
                "with @rl_task(idempotency_key=…), which builds a key from the arguments of each call"
            )
        self.level = level_of(task, push, client)
        self._task = task
        self._push = push
        self.client = client
        self._chosen = None if task_ids is None else _checked_ids(task_ids)
        self._calls: list[CallArguments] = []
        self._ids: list[str] = []
        self._kept: deque[Submission] = deque()
        self._kept_bytes = 0
        self.keeps = KEPT_BYTES
        self._left = NOTHING
        self._paid = False
        self._chunks: Iterator[list[Submission]] | None = None
        self._piece: list[list[Submission]] = []
        self._outcomes: list[Pushed | RelierError] = []

    # --- the calls -----------------------------------------------------------------------------------------------

    def add(self, calls: Sequence[CallArguments]) -> None:
        """Check some calls and count them against the limits. Raise if a call is wrong. Nothing is pushed yet."""
        ids = self._next_ids(len(self._calls), len(calls))
        self.take(calls, ids, [self._make(*pair) for pair in zip(calls, ids, strict=True)])

    def take(self, calls: Sequence[CallArguments], ids: Sequence[str], tasks: Sequence[Submission]) -> None:
        """Add calls with their ids and submissions."""
        first = len(self._calls)
        self._calls += calls
        self._ids += ids
        most = self.client.settings.max_payload_bytes
        for number, task in enumerate(tasks, first):
            # Calls of one bulk differ in id, key, limits and payload only, and the ledger checks each again when it is
            # sent. Two limits of one call may have the same key.
            if number == 0 or task.key or self._chosen is not None or len(task.payload) > most or len(task.limits) > 1:
                check_submission(task, most)
            self._keep(task)
        self._left += self._task.guards.load(self.client.settings, calls, self._held(tasks))

    def _next_ids(self, first: int, n: int) -> list[str]:
        if self._chosen is None:
            return [new_task_id() for _ in range(n)]
        ids = self._chosen[first : first + n]
        if len(ids) < n:
            raise _miscounted(len(self._chosen), "more")
        return ids

    def _make(self, call: CallArguments, task_id: str) -> Submission:
        """Return the submission of one call. If a call is encoded twice, only the time differs."""
        push, client = self._push, self.client
        if self._chosen is not None:
            push = replace(push, task_id=task_id)
        args, kwargs = call
        return submission_of(self._task, args, kwargs, push, self.level, client.settings, client.keyring, task_id)

    def _keep(self, task: Submission) -> None:
        if self._kept_bytes <= self.keeps:
            self._kept_bytes += len(task.payload) + OBJECT_BYTES
            if self._kept_bytes <= self.keeps:
                self._kept.append(task)

    def _held(self, tasks: Sequence[Submission]) -> int:
        return sum(map(bytes_held, tasks)) if self.client.settings.admission_max_bytes else 0

    def _tasks(self) -> Iterator[Submission]:
        kept = len(self._kept)
        while self._kept:
            yield self._kept.popleft()
        for number in range(kept, len(self._calls)):
            yield self._make(self._calls[number], self._ids[number])

    @property
    def size(self) -> int:
        """Return the number of calls so far."""
        return len(self._calls)

    def check_count(self, calls: int) -> None:
        """Raise if there are fewer calls than ids."""
        if self._chosen is not None and len(self._chosen) > calls:
            raise _miscounted(len(self._chosen), "fewer")

    # --- the pieces ----------------------------------------------------------------------------------------------

    def parts(self) -> Sequence[Bulk]:
        """Return the bulks to send: this one, or one for each shard."""
        return (self,)

    def next_piece(self) -> list[list[Submission]]:
        """Return the chunks to submit next, or none if all were sent or if one failed and the rest is not sent."""
        if self._chunks is None:
            self.check_count(len(self._calls))
            self._chunks = Ledger.chunks(self._tasks())
        self._piece, size = [], 0
        for chunk in islice(self._chunks, PIECE_CHUNKS if self._paid else 1):
            self._piece.append(chunk)
            size += sum(len(task.payload) for task in chunk)
            if size >= PIECE_BYTES:
                break
        return self._piece

    def admission(self) -> Admission | None:
        """Return the limits for the piece. An unpaid chunk also pays for all later ones. Call once per piece."""
        settings = self.client.settings
        if self._paid:  # already admitted, but if bytes are limited, they must still be counted
            return Admission(max_bytes=MOST_HELD) if settings.admission_max_bytes else None
        (chunk,) = self._piece
        first, load = len(self._outcomes), self._left
        calls = self._calls[first : first + len(chunk)]
        self._left = load - self._task.guards.load(settings, calls, self._held(chunk))
        return self._task.guards.admission(settings, load, self._left)

    def answered(self, answers: Sequence[list[Accepted] | RelierError]) -> None:
        """Collect the answers, one for each chunk of the piece."""
        failed: RelierError | None = None
        for chunk, answer in zip(self._piece, answers, strict=True):
            if isinstance(answer, RelierError):
                failed = failed or answer
                self._outcomes += [answer] * len(chunk)
                continue
            self._outcomes += map(self._outcome_of, chunk, answer)
            self._paid = self._paid or any(not is_duplicate(*pair) for pair in zip(chunk, answer, strict=True))
        if failed is not None:
            self._give_up(failed)

    def _outcome_of(self, task: Submission, answer: Accepted) -> Pushed | RelierError:
        error = refusal_in(task, answer, self._task.options.on_duplicate)
        return error or Pushed(answer.id, is_duplicate(task, answer))

    def _give_up(self, error: RelierError) -> None:
        """Do not send the rest: an outage would cost every piece its deadline, and the bulk can be pushed again."""
        self._chunks = iter(())
        left = len(self._ids) - len(self._outcomes)
        if left:
            unsent = StoreError(
                f"the task was not sent, because one before it failed with {type(error).__name__}: {error}"
            )
            self._outcomes += [unsent] * left

    def outcome(self, number: int) -> Pushed | RelierError:
        """Return how one call ended."""
        return self._outcomes[number]

    # --- the end -------------------------------------------------------------------------------------------------

    def pushed(self) -> list[Pushed]:
        """Return all tasks, in order. If some were not accepted, raise an error with the ids of all."""
        errors = [outcome for outcome in self._outcomes if isinstance(outcome, RelierError)]
        if not errors:
            return self._outcomes  # type: ignore[return-value]
        if len(errors) < len(self._ids):
            outcomes = (each if isinstance(each, RelierError) else None for each in self._outcomes)
            raise PartialPushError(dict(zip(self._ids, outcomes, strict=True)))
        if isinstance(errors[0], StoreError | PushIndeterminate):
            errors[0].task_ids = tuple(self._ids)
            errors[0].add_note(
                "push the same calls again with push_many(calls, task_ids=error.task_ids): that never makes a second "
                "task"
            )
        raise errors[0]


def _checked_ids(task_ids: Iterable[str]) -> list[str]:
    ids = [] if isinstance(task_ids, str) else list(task_ids)
    if isinstance(task_ids, str) or not all(isinstance(each, str) for each in ids):
        raise InvalidSubmissionError(f"task_ids must be a list of ids, not {task_ids!r:.60}; nothing was pushed")
    if len(set(ids)) < len(ids):
        raise InvalidSubmissionError("task_ids contains a duplicate id; nothing was pushed; give every call its own id")
    return ids


def _miscounted(ids: int, calls: str) -> InvalidSubmissionError:
    return InvalidSubmissionError(
        f"task_ids has {ids} ids, but there are {calls} calls; nothing was pushed; give one id for each call, in order"
    )
