"""More tasks at once than one commit may take: a chain step that leads into a group of thousands.

They follow from one attempt all together or not at all, so they enter as a few tasks `relier.spread`, each of which
holds a batch of them as they are, with their ids. It has nothing to do but to hand them on with its own commit. If
there are too many batches, they are packed in the same way.
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
AT_ONCE = 500  # half of what a commit takes
ROOM = 0.5  # of a payload: as text it grows by a third, and an envelope is around it
OVERHEAD = 300  # of one submission besides its payload


def spread(adoption: Adoption, collector: Collector) -> tuple[Submission, ...]:
    """What follows from an attempt, in as few tasks as a commit takes. Joins stay: their part comes with the commit."""
    follow_ups = collector.follow_ups
    if len(follow_ups) <= AT_ONCE:
        return tuple(follow_ups)
    joins = [task for task in follow_ups if task.join is not None]
    rest = [task for task in follow_ups if task.join is None]
    most = int(adoption.client.settings.max_payload_bytes * ROOM)
    while len(rest) > AT_ONCE:
        cut = [_pack(adoption, collector.queue, batch) for batch in _batches(rest, most)]
        if len(cut) >= len(rest):  # each is so large that it travels alone
            break
        rest = cut
    return (*joins, *rest)


def hand_on(adoption: Adoption, queue: str, tasks: Sequence[Submission], name: str) -> None:
    """Send what follows from a run that is not the task's last, and so has no commit. Under a name: if the process dies
    before the retry is told, the next one comes here again, and what was sent is not sent twice."""
    most = int(adoption.client.settings.max_payload_bytes * ROOM)
    for number, batch in enumerate(_batches(tasks, most)):
        alone = len(batch) == 1 and len(batch[0].payload) + OVERHEAD > most  # no other message has room for it
        adoption.submit(batch[0] if alone else _packed(adoption, queue, batch, f"{name}.{number}"))


def run_spread(app: Any, collector: Collector, request: dict[str, Any], packed: str) -> TracerReport:  # noqa: ARG001
    """The body of `relier.spread`: hand on what it holds."""
    held = msgspec.msgpack.decode(base64.b64decode(packed), type=tuple[Submission, ...])
    return TracerReport(states.SUCCESS, follow_ups=held)


def _batches(tasks: Sequence[Submission], most: int) -> Iterator[list[Submission]]:
    batch: list[Submission] = []
    size = 0
    for task in tasks:
        more = len(task.payload) + OVERHEAD
        if batch and (len(batch) == AT_ONCE or size + more > most):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += more
    if batch:
        yield batch


def _pack(adoption: Adoption, queue: str, batch: list[Submission]) -> Submission:
    return batch[0] if len(batch) == 1 else _packed(adoption, queue, batch, new_task_id())


def _packed(adoption: Adoption, queue: str, batch: list[Submission], task_id: str) -> Submission:
    packed = base64.b64encode(msgspec.msgpack.encode(tuple(batch))).decode()
    return adoption.submission(internal_message(SPREAD_TASK, task_id, (packed,), None, None), queue, None)
