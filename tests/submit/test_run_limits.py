"""Limits at run time, as tasks declare them: invalid ones are refused at once, valid ones reach the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relier import Client, ConfigurationError, InvalidSubmissionError, Limit, PushOptions, Settings, rl_task, use_client
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.store.call import Durability
from relier.submit.push import NO_OPTIONS, submission_of


def limits_of(task: Any, *args: Any, **kwargs: Any) -> tuple[RunLimit, ...]:
    return submission_of(task, args, kwargs, NO_OPTIONS, Durability.MEMORY, Settings()).limits


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: Limit(), "give concurrency, rate or both"),
        (lambda: Limit(concurrency=0), "concurrency must be a whole number from 1"),
        (lambda: Limit(concurrency=True), "concurrency must be a whole number from 1"),
        (lambda: Limit(rate="often"), 'such as "10/s", "100/min"'),
        (lambda: Limit(rate="0/s"), "rate must be a number per time"),
        (lambda: Limit(rate="5/fortnight"), "rate must be a number per time"),
        (lambda: Limit(rate="2000000/s"), "one per year to one per microsecond"),
        (lambda: Limit(concurrency=1, burst=3), "burst needs a rate"),
        (lambda: Limit(concurrency=1, per=""), "per must be a template"),
    ],
)
def test_a_wrong_limit_says_what_is_wrong(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match="is invalid") as caught:
        given()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ([Limit(concurrency=1, per="tenant:{tenent}")], "has no such argument; its arguments are: tenant"),
        ([Limit(concurrency=1, per="tenant:{}")], "must name its arguments"),
        ([Limit(concurrency=1, per="tenant:{")], "is not a valid template"),
        ([Limit(concurrency=1), Limit(rate="1/s")], "each with a different `per`"),
        ([Limit(concurrency=1, per=f"{n}") for n in range(6)], "at most 5 limits"),
        ("10/s", "limits must be Limit"),
    ],
)
def test_wrong_limits_of_a_task_are_refused_where_it_is_defined(limits: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:

        @rl_task(limits=limits)
        def build(tenant: int) -> None:
            """Never defined: the decorator raises."""

    assert says in str(caught.value)


def test_a_template_that_cannot_be_filled_in_is_an_error_of_the_push() -> None:
    @rl_task(limits=Limit(concurrency=1, per="tenant:{order.tenant}"))
    def build(order: dict[str, int]) -> None:
        """Never run."""

    with pytest.raises(InvalidSubmissionError, match="cannot be filled in from these arguments"):
        limits_of(build, {"tenant": 1})


def test_per_decides_which_tasks_share_a_limit() -> None:
    @rl_task(name="limits.build", queue="builds", limits=[Limit(concurrency=3), Limit(rate="1/s", per="queue")])
    def build(tenant: int = 7) -> None:
        """Never run."""

    @rl_task(limits=[Limit(concurrency=3, per="tenant:{tenant}"), Limit(concurrency=9, per="namespace")])
    def ship(tenant: int = 7) -> None:
        """Never run."""

    three, second = LimitNumbers(3), LimitNumbers(0, 1_000_000, 1_000_000)
    assert limits_of(build) == (
        RunLimit("task:limits.build", "task:limits.build", three),
        RunLimit("queue", "queue:builds", second),
    )
    assert limits_of(ship, 5)[0] == RunLimit("tenant:{tenant}", "tenant:5", three)
    assert limits_of(ship)[0].key == "tenant:7", "a default counts"
    assert limits_of(ship)[1] == RunLimit("namespace", "namespace", LimitNumbers(9))
    moved = submission_of(build, (), {}, PushOptions(queue="other"), Durability.MEMORY, Settings())
    assert moved.limits[1].key == "queue:other"


@pytest.mark.parametrize("value", ["big shop", "a,b", "ü", "x" * 500, "%", "new\nline"])
def test_every_value_makes_a_valid_key(value: str, settings: Settings) -> None:
    @rl_task(name="limits.any", limits=Limit(concurrency=1, per="tenant:{tenant}"))
    def build(tenant: str) -> None:
        """Never run."""

    (limit,) = limits_of(build, value)
    assert len(limit.key) <= 100
    assert not {" ", ",", "\n"} & set(limit.key)
    assert limit.key != limits_of(build, value + "!")[0].key


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    made = Client(settings)
    use_client(made)
    yield made
    use_client(None)
    made.close()


def test_a_bulk_keeps_the_limits_of_each_call(client: Client) -> None:
    @rl_task(name="limits.bulk", limits=Limit(concurrency=2, per="tenant:{tenant}"))
    def build(tenant: int) -> None:
        """Never run."""

    receipts = build.push_many([(n % 3,) for n in range(250)])
    assert len(receipts) == 250
    page = client.run(client.ledger.limits())
    assert {key.key: key.live for key in page.keys} == {"tenant:0": 84, "tenant:1": 83, "tenant:2": 83}
    (queue,) = client.run(client.ledger.stats()).queues
    assert (queue.ready, queue.held_back) == (3, 247)


def test_two_limits_that_share_a_key_are_refused_before_anything_is_pushed(client: Client) -> None:
    @rl_task(name="limits.pair", limits=[Limit(concurrency=2, per="{a}"), Limit(concurrency=2, per="{b}")])
    def pair(a: int, b: int) -> None:
        """Never run."""

    with pytest.raises(InvalidSubmissionError):
        pair.push_many([*((n, -1) for n in range(150)), (5, 5)])
    assert client.run(client.ledger.stats()).queues == ()


@pytest.mark.parametrize(
    ("rate", "interval_us"),
    [
        ("10/s", 100_000),
        ("10 / sec", 100_000),
        ("2/minute", 30_000_000),
        ("2/mins", 30_000_000),
        ("1000/hours", 3_600_000),
        ("4/days", 21_600_000_000),
        ("5/10s", 2_000_000),
        ("1/250ms", 250_000),
    ],
)
def test_a_rate_may_be_written_in_several_ways(rate: str, interval_us: int) -> None:
    assert Limit(rate=rate).numbers().interval_us == interval_us
