"""Validate the input of moves before a script sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relier.errors import InvalidSubmissionError, PayloadTooLargeError
from relier.store.call import Durability

if TYPE_CHECKING:
    from relier.ledger.records import AdmissionLimit, Lease, Submission

MAX_NAME_BYTES = 512
PRIORITIES = range(-9, 10)
MAX_PARTS = 1_000_000
MAX_PART_BYTES = 64
MAX_LIMITS = 5
MAX_LIMIT_BYTES = 128


def encoded_size(value: object) -> int:
    """Return the size of a text in bytes, or 0 for anything that is not valid text."""
    try:
        return len(value.encode()) if isinstance(value, str) else 0
    except UnicodeEncodeError:
        return 0


def check_word(what: str, value: object, most: int = MAX_NAME_BYTES) -> None:
    """Check an id or a lane. Scripts join them with spaces, so they cannot contain any."""
    if not 1 <= encoded_size(value) <= most or not isinstance(value, str) or value.split() != [value]:
        raise InvalidSubmissionError(
            f"{what} must be text of 1 to {most} bytes without white space, not {value!r:.60}; nothing was written"
        )


def check_name(what: str, value: object) -> None:
    """Check a queue or a task name: one line of limited length."""
    if not 1 <= encoded_size(value) <= MAX_NAME_BYTES or {"\n", "\0"} & set(str(value)):
        raise InvalidSubmissionError(
            f"{what} must be one line of 1 to {MAX_NAME_BYTES} bytes, not {value!r:.60}; nothing was written"
        )


def check_key(what: str, value: object) -> None:
    """Check a key: any text. A long one is stored as its digest."""
    if not encoded_size(value):
        raise InvalidSubmissionError(f"{what} must be non-empty text, not {value!r:.60}; nothing was written")


def check_bytes(what: str, value: object, limit: int) -> None:
    if not isinstance(value, bytes):
        raise InvalidSubmissionError(f"{what} must be bytes, not {type(value).__name__}; encode it first")
    if len(value) > limit:
        raise PayloadTooLargeError(
            f"{what} is {len(value):,} bytes, the limit is {limit:,} (RELIER_MAX_PAYLOAD_BYTES); nothing was written; "
            f"store the data elsewhere and pass a reference, or raise the limit"
        )


def check_number(what: str, value: object, lowest: int = 0, highest: int = 2**53) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidSubmissionError(f"{what} must be a whole number from {lowest} to {highest}, not {value!r:.80}")


def check_submission(task: Submission, max_payload_bytes: int, *, joins: bool = False) -> None:
    """Check a task before it is submitted."""
    check_word("the task id", task.id)
    if task.join is not None and not joins:
        raise InvalidSubmissionError(
            f"task {task.id} has a join, but only a follow-up, which a commit or a burial submits, may have a join; "
            f"nothing was written; submit the task without the join"
        )
    check_name("the task name", task.name)
    check_name("the queue", task.queue)
    check_bytes(f"the payload of {task.id}", task.payload, max_payload_bytes)
    check_number("priority", task.priority, PRIORITIES[0], PRIORITIES[-1])
    if (
        not isinstance(task.key, str)
        or not isinstance(task.nonce, str)
        or (task.key + task.nonce and not encoded_size(task.key + task.nonce))
    ):
        raise InvalidSubmissionError(f"key and nonce must be text, not {task.key!r:.60} and {task.nonce!r:.60}")
    if not isinstance(task.durability, Durability):
        raise InvalidSubmissionError(f"durability must be a Durability, not {task.durability!r:.60}")
    if task.member is not None:
        check_member(task)
    if task.limits:
        check_limits(task)
    _check_times(task)
    if task.on_lost not in {"retry", "bury", "hold"} or task.on_conflict not in {"return", "replace"}:
        raise InvalidSubmissionError(
            f"on_lost must be retry, bury or hold, and on_conflict return or replace, not {task.on_lost!r:.40} "
            f"and {task.on_conflict!r:.40}"
        )


def _check_times(task: Submission) -> None:
    for what in ("eta_ms", "delay_ms", "expires_at_ms", "expires_in_ms", "key_ttl_ms"):
        check_number(what, getattr(task, what))
    for what in ("max_resurrections", "result_ttl_ms", "dead_ttl_ms"):
        if getattr(task, what) is not None:
            check_number(what, getattr(task, what))
    if task.tomb_ttl_ms is not None:
        check_number("tomb_ttl_ms", task.tomb_ttl_ms, 1)


def check_limits(task: Submission) -> None:
    """Check the limits of a task at run time."""
    keys = [limit.key for limit in task.limits]
    if len(keys) > MAX_LIMITS:
        raise InvalidSubmissionError(
            f"task {task.id} has {len(keys)} limits, but at most {MAX_LIMITS} are allowed; nothing was written"
        )
    if len(set(keys)) < len(keys):
        raise InvalidSubmissionError(
            f"two limits of task {task.id} have the same key ({', '.join(keys)}); nothing was written; begin their "
            f"templates with different words"
        )
    for limit in task.limits:
        for what, text in (("the name", limit.name), ("the key", limit.key)):
            check_word(f"{what} of a limit", text, MAX_LIMIT_BYTES)
        if "," in limit.key:
            raise InvalidSubmissionError(
                f"the key of a limit cannot contain a comma: {limit.key!r:.60}; replace the comma"
            )
        for what in ("concurrency", "interval_us", "tolerance_us"):
            check_number(f"{what} of limit {limit.key}", getattr(limit.numbers, what))


def check_member(task: Submission) -> None:
    """Check a task that belongs to a batch. It must not have an idempotency key."""
    check_word("the batch id", getattr(task.member, "batch", None))
    if task.key or task.nonce or task.join is not None:
        raise InvalidSubmissionError(
            f"task {task.id} is a member of a batch, so it can have neither key nor nonce nor join; nothing was written"
        )


def check_follow_up(task: Submission, max_payload_bytes: int) -> None:
    """Check a follow-up: a task that is submitted when another task ends. It may have a join."""
    check_submission(task, max_payload_bytes, joins=True)
    if task.join is None:
        return
    check_number(f"the size of join {task.id}", getattr(task.join, "size", None), 1, MAX_PARTS)
    check_word(f"the part of join {task.id}", getattr(task.join, "part", None), MAX_PART_BYTES)
    if task.key or task.nonce or not (task.eta_ms or task.delay_ms):
        raise InvalidSubmissionError(
            f"join {task.id} needs an eta or a delay, which is its deadline, and can have neither key nor nonce; "
            f"nothing was written; set the eta or the delay, and leave key and nonce unset"
        )


def check_replacement(lease: Lease, task: Submission, max_payload_bytes: int) -> None:
    """Check the submission that replaces a task under its id. Fields fixed at submission cannot change."""
    check_submission(task, max_payload_bytes)
    if task.id != lease.task_id:
        raise InvalidSubmissionError(
            f"task {lease.task_id} cannot be replaced by a task with a different id, {task.id!r:.60}; nothing was "
            f"written; use the id {lease.task_id}"
        )
    for what in ("key", "nonce", "eta_ms", "delay_ms", "expires_at_ms", "expires_in_ms"):
        if getattr(task, what):
            raise InvalidSubmissionError(
                f"the submission that replaces task {task.id} sets {what}, which was fixed when the task was first "
                f"submitted; nothing was written; leave {what} unset"
            )


def check_fits(limit: AdmissionLimit, tasks: int, extra: int) -> None:
    """Refuse a call that a limit can never admit: waiting would not help."""
    check_name("the name of a limit", limit.name)
    for what, lowest in (("interval_us", 1), ("tolerance_us", 1), ("weight", 0)):
        check_number(f"{what} of limit {limit.name!r}", getattr(limit, what), lowest)
    cost = (tasks * limit.weight + extra) * limit.interval_us
    if cost > limit.tolerance_us:
        burst = limit.tolerance_us // limit.interval_us
        raise InvalidSubmissionError(
            f"{tasks} tasks (weight {limit.weight}, extra {extra}) never fit into limit {limit.name!r}, which takes "
            f"{burst} at once; nothing was written; split the call or raise the limit"
        )
