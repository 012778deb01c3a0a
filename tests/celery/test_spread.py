"""If there are more follow-ups than one commit takes, all of them still enter together, or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relier.celery.messages import Message, internal_message, read_message, submission_of
from relier.celery.sending.collect import Collector
from relier.celery.sending.spread import MAX_FOLLOW_UPS, SPREAD_TASK, run_spread, spread
from relier.codec import decode
from relier.codec.keyring import NO_KEYS
from relier.envelope import open_envelope
from relier.ledger.moves.worker import COMMIT_TASKS
from relier.ledger.records import Join, Submission
from relier.settings import Settings
from relier.store.call import Durability


class OfTest:
    """The parts of an adoption that these tests need."""

    def __init__(self, settings: Settings) -> None:
        self.client = SimpleNamespace(settings=settings, keyring=NO_KEYS)

    def submission(self, message: Message, queue: str, priority: int | None) -> Submission:
        return submission_of(message, queue, priority or 0, Durability.MEMORY, self.client.settings, NO_KEYS)


def task(number: int, size: int = 10) -> Submission:
    return Submission(id=f"t{number}", name="some.task", payload=b"x" * size, eta_ms=number, queue="q")


def collected(tasks: list[Submission]) -> Collector:
    return Collector("parent", "q", follow_ups=tasks)


def unpacked(tasks: tuple[Submission, ...]) -> list[Submission]:
    """Return all tasks, once every `relier.spread` has run."""
    found: list[Submission] = []
    for each in tasks:
        if each.name != SPREAD_TASK:
            found.append(each)
            continue
        (given,), _ = decode(open_envelope(each.payload, task_id=each.id, name=each.name).body)
        (packed,), _, _ = decode(str(read_message(given).body).encode())
        report = run_spread(None, Collector(each.id, "q"), {}, packed)
        assert len(report.follow_ups) < COMMIT_TASKS
        found += unpacked(report.follow_ups)
    return found


@pytest.mark.parametrize("n", [1, MAX_FOLLOW_UPS, MAX_FOLLOW_UPS + 1, 3000])
def test_packed_follow_ups_are_unpacked_unchanged(settings: Settings, n: int) -> None:
    tasks = [task(i) for i in range(n)]
    out = spread(OfTest(settings), collected(tasks))
    assert len(out) <= MAX_FOLLOW_UPS
    assert unpacked(out) == tasks


def test_few_follow_ups_are_not_packed(settings: Settings) -> None:
    tasks = [task(i) for i in range(MAX_FOLLOW_UPS)]
    assert spread(OfTest(settings), collected(tasks)) == tuple(tasks)


def test_batches_keep_within_the_largest_payload(server: Any) -> None:
    settings = Settings(redis_url=server.url, max_payload_bytes=20_000)
    tasks = [task(i, 900) for i in range(1500)]
    out = spread(OfTest(settings), collected(tasks))
    assert all(len(each.payload) <= 20_000 for each in out)
    assert len(out) <= MAX_FOLLOW_UPS
    assert unpacked(out) == tasks


def test_a_follow_up_too_large_to_pack_is_sent_alone(server: Any) -> None:
    settings = Settings(redis_url=server.url, max_payload_bytes=20_000)
    tasks = [task(i, 15_000) for i in range(600)]
    assert spread(OfTest(settings), collected(tasks)) == tuple(tasks)


def test_too_many_batches_are_packed_again(server: Any) -> None:
    settings = Settings(redis_url=server.url, max_payload_bytes=100_000)
    tasks = [task(i, 20_000) for i in range(1200)]  # two in a batch: 600 batches, which do not pack further
    out = spread(OfTest(settings), collected(tasks))
    assert len(out) < COMMIT_TASKS
    assert unpacked(out) == tasks


def test_a_join_is_not_packed(settings: Settings) -> None:
    join = Submission(id="j", name="relier.chord", payload=b"", delay_ms=1, join=Join(2, "p"))
    out = spread(OfTest(settings), collected([*(task(i) for i in range(2000)), join]))
    assert join in out


def test_an_internal_message_reads_as_a_task(settings: Settings) -> None:
    message = internal_message("relier.spread", "i", ("x",), "root", None)
    assert (message.task, message.record_id, message.eta_ms) == ("relier.spread", "i", 0)
