"""A call of a task becomes a Submission, and what the ledger answers becomes a receipt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from relier.envelope import seal
from relier.errors import (
    CorruptRecordError,
    DuplicateTaskError,
    InvalidSubmissionError,
    PartialPushError,
    RelierError,
    TaskInFlightError,
)
from relier.keyring import NO_KEYS, Keyring
from relier.ledger.ledger import Ledger
from relier.ledger.records import Accepted, Admission, Submission, new_task_id
from relier.options import OnDuplicate, PushOptions
from relier.settings import Settings
from relier.states import LIVE
from relier.store.call import Call, Durability
from relier.submit.client import Client
from relier.submit.guards import Load
from relier.trace import current_trace

if TYPE_CHECKING:
    from relier.task import RlTask

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
NO_OPTIONS = PushOptions()
MOST_BYTES = 2**53
RESULT_TTL_S, DEAD_TTL_S = 3600.0, 30 * 86_400.0  # what the scripts do where a record says nothing


def call_of(item: Any) -> tuple[Args, Kwargs]:
    """One item of `push_many`: a tuple is positional arguments, a dict keyword arguments."""
    if isinstance(item, tuple):
        return item, {}
    if isinstance(item, dict):
        return (), item
    raise InvalidSubmissionError(
        f"push_many takes tuples of positional or dicts of keyword arguments, not {item!r:.60}; nothing was pushed; "
        f"write ({item!r:.40},) for one positional argument"
    )


def submission_of(
    task: RlTask[Any, Any],
    args: Args,
    kwargs: Kwargs,
    push: PushOptions,
    level: Durability,
    settings: Settings,
    keyring: Keyring = NO_KEYS,
) -> Submission:
    """What enters the ledger. Arguments that do not fit or cannot travel are refused here, in the caller's face."""
    options = task.options
    task_id = new_task_id() if push.task_id is None else push.task_id
    body = task.arguments.encode(args, kwargs)
    key = task.guards.key(args, kwargs, body, push.idempotency_key)
    payload = seal(
        body,
        schema_version=options.schema_version,
        pushed_ms=time.time_ns() // 1_000_000,
        trace=current_trace(),
        task_id=task_id,
        name=options.name,
        keyring=keyring,
    )
    times: dict[str, Any] = {} if push is NO_OPTIONS else push.times()
    return Submission(
        id=task_id,
        name=options.name,
        payload=payload,
        queue=options.queue if push.queue is None else push.queue,
        priority=options.priority if push.priority is None else push.priority,
        key=key,
        key_ttl_ms=round(1000 * options.idempotency_ttl) if key else 0,
        on_conflict="replace" if options.on_duplicate == "replace" else "return",
        nonce="" if push.task_id is None else new_task_id(),  # tells a re-sent push of a chosen id from somebody else's
        max_resurrections=options.max_resurrections,
        on_lost=options.on_lost,
        result_ttl_ms=kept_ms(options.result_ttl, settings.result_ttl, RESULT_TTL_S),
        dead_ttl_ms=kept_ms(options.dead_ttl, settings.dead_ttl, DEAD_TTL_S),
        durability=level,
        **times,
    )


def kept_ms(own: float | None, usual: float, silent: float) -> int | None:
    """How long an ended record is kept: None where the scripts do that anyway, so that the record stays plain."""
    seconds = usual if own is None else own
    return None if seconds == silent else round(1000 * seconds)


def level_of(task: RlTask[Any, Any], push: PushOptions, client: Client) -> Durability:
    """The durability of one push: its own, else the task's, else the setting."""
    return push.durability or task.options.durability or Durability(client.settings.durability)


def is_duplicate(task: Submission, answer: Accepted) -> bool:
    """Whether the task was here before. A fresh id that "exists" is this very push, sent again after a lost reply."""
    return answer.status != "new" and not (answer.status == "exists" and not task.nonce and answer.id == task.id)


def trouble_with(task: Submission, answer: Accepted, on_duplicate: OnDuplicate) -> RelierError | None:
    """Why a push that was answered is none: something else holds its id, or it is a duplicate that shall be refused."""
    if answer.status == "corrupt":
        return CorruptRecordError(
            f"push of {task.id} was refused: something that is no task holds its key; nothing was written; look at it"
        )
    if on_duplicate != "raise" or not is_duplicate(task, answer):
        return None
    if answer.state in LIVE:
        return TaskInFlightError(
            f"task {answer.id} with the same idempotency key is {answer.state}; nothing was pushed; await that one",
            answer.id,
        )
    return DuplicateTaskError(
        f"task {answer.id} with the same idempotency key is {answer.state or 'ended'} already; nothing was pushed",
        answer.id,
    )


class Bulk:
    """A `push_many` under way, without the way to the store: what to submit next, and what was answered.

    It is let in or refused as a whole. Chunks are submitted one by one until one brings something new: that one pays
    for itself and all that follow it. Then the rest goes in at once, without being weighed again.
    """

    def __init__(
        self, task: RlTask[Any, Any], calls: Sequence[tuple[Args, Kwargs]], tasks: list[Submission], settings: Settings
    ) -> None:
        self._task = task
        self._settings = settings
        self._chunks = [*Ledger.chunks(tasks)]
        self._answers: list[Any] = []
        self._paid = False
        self._left = self._load(calls, tasks)
        self._calls = iter(calls)
        # Tasks that are let in unweighed must still be counted where bytes are.
        self._counted = Admission(max_bytes=MOST_BYTES) if settings.admission_max_bytes else None

    @property
    def unpaid(self) -> list[Submission] | None:
        """The next chunk that must pass admission; None: there is none any more."""
        return None if self._paid or len(self._answers) == len(self._chunks) else self._chunks[len(self._answers)]

    def price(self) -> Admission | None:
        """What the next chunk must pass: for itself and all that follows it. Ask once a chunk."""
        chunk = self._chunks[len(self._answers)]
        load = self._left
        self._left = load - self._load([*islice(self._calls, len(chunk))], chunk)
        return self._task.guards.admission(self._settings, load, self._left)

    def heard(self, answers: list[Accepted]) -> None:
        chunk = self._chunks[len(self._answers)]
        self._answers.append(answers)
        self._paid = any(not is_duplicate(task, answer) for task, answer in zip(chunk, answers, strict=True))

    def _load(self, calls: Sequence[tuple[Args, Kwargs]], tasks: Sequence[Submission]) -> Load:
        held = sum(map(bytes_held, tasks)) if self._settings.admission_max_bytes else 0
        return self._task.guards.load(self._settings, calls, held)

    def rest(self, ledger: Ledger, level: Durability) -> list[Call[list[Accepted]]]:
        """What may follow at once."""
        return [ledger.submit(chunk, self._counted, level) for chunk in self._chunks[len(self._answers) :]]

    def accepted(self, rest: Sequence[Any]) -> list[tuple[Submission, Accepted]]:
        """Each task with its answer, in order. Where some were not accepted, a PartialPushError tells which."""
        pairs: list[tuple[Submission, Accepted | RelierError]] = []
        for chunk, answers in zip(self._chunks, [*self._answers, *rest], strict=True):
            each = [answers] * len(chunk) if isinstance(answers, RelierError) else answers
            pairs += zip(chunk, map(self._judged, chunk, each), strict=True)
        errors = [answer for _, answer in pairs if isinstance(answer, RelierError)]
        if not errors:
            return pairs  # type: ignore[return-value]
        if len(errors) == len(pairs):
            raise errors[0]
        raise PartialPushError({task.id: answer if isinstance(answer, RelierError) else None for task, answer in pairs})

    def _judged(self, task: Submission, answer: Accepted | RelierError) -> Accepted | RelierError:
        if isinstance(answer, RelierError):
            return answer
        return trouble_with(task, answer, self._task.options.on_duplicate) or answer


def bytes_held(task: Submission) -> int:
    """What a task counts towards RELIER_ADMISSION_MAX_BYTES: its record from its options on (see lib/enter.lua)."""
    return len(task.args()[-1])  # type: ignore[arg-type]
