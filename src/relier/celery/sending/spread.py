"""Submit more follow-ups than one commit may take: for example, a chain step that leads into a group of thousands.

All follow-ups of one attempt must enter together or not at all. So they enter as a few tasks `relier.spread`. Each of
these holds a batch of the follow-ups, unchanged and with their ids, and submits them with its own commit. If there are
too many batches, the batches are packed in the same way.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from celery import states

from relier.celery.messages import internal_message
from relier.celery.sending.collect import Collector
from relier.celery.working.report import TracerReport
from relier.ledger.records import Submission, new_task_id

if TYPE_CHECKING:
    from relier.celery.adoption import Adoption

SPREAD_TASK = "relier.spread"
MAX_FOLLOW_UPS = 500  # half of the ledger's limit for one commit
BATCH_SHARE = 0.5  # of the largest payload: base64 adds a third, and the envelope adds some more
OVERHEAD = 300  # bytes of one submission besides its payload


def spread(adoption: Adoption, collector: Collector) -> tuple[Submission, ...]:
    """Return the follow-ups of an attempt in as few tasks as one commit takes.

    Joins are not packed, because their part must enter with this commit.
    """
    follow_ups = collector.follow_ups
    if len(follow_ups) <= MAX_FOLLOW_UPS:
        return tuple(follow_ups)
    joins = [task for task in follow_ups if task.join is not None]
    rest = [task for task in follow_ups if task.join is None]
    most = int(adoption.client.settings.max_payload_bytes * BATCH_SHARE)
    while len(rest) > MAX_FOLLOW_UPS:
        cut = [_pack_batch(adoption, collector.queue, batch) for batch in _batches(rest, most)]
        if len(cut) >= len(rest):  # each is so large that it fills a batch alone
            break
        rest = cut
    return (*joins, *rest)


def submit_in_batches(adoption: Adoption, queue: str, tasks: Sequence[Submission], name: str) -> None:
    """Submit the follow-ups of a run that is not the task's last and so has no commit.

    The ids of the batches derive from `name`. If the process dies before the retry is recorded, the next run submits
    the same ids, and no task is submitted twice.
    """
    most = int(adoption.client.settings.max_payload_bytes * BATCH_SHARE)
    for number, batch in enumerate(_batches(tasks, most)):
        alone = len(batch) == 1 and len(batch[0].payload) + OVERHEAD > most  # too large for a batch
        adoption.submit(batch[0] if alone else _spread_task(adoption, queue, batch, f"{name}.{number}"))


def run_spread(app: Any, collector: Collector, request: dict[str, Any], packed: str) -> TracerReport:  # noqa: ARG001
    """Run `relier.spread`: submit the tasks that its message holds, with its commit."""
    held = msgspec.msgpack.decode(base64.b64decode(packed), type=tuple[Submission, ...])
    return TracerReport(states.SUCCESS, follow_ups=held)


def _batches(tasks: Sequence[Submission], most: int) -> Iterator[list[Submission]]:
    batch: list[Submission] = []
    size = 0
    for task in tasks:
        more = len(task.payload) + OVERHEAD
        if batch and (len(batch) == MAX_FOLLOW_UPS or size + more > most):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += more
    if batch:
        yield batch


def _pack_batch(adoption: Adoption, queue: str, batch: list[Submission]) -> Submission:
    return batch[0] if len(batch) == 1 else _spread_task(adoption, queue, batch, new_task_id())


def _spread_task(adoption: Adoption, queue: str, batch: list[Submission], task_id: str) -> Submission:
    packed = base64.b64encode(msgspec.msgpack.encode(tuple(batch))).decode()
    return adoption.submission(internal_message(SPREAD_TASK, task_id, (packed,), None, None), queue, None)
