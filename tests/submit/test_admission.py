"""Admission: the limits that a push must pass, and the errors if it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from relier import AdmissionRejectedError, Admit, ConfigurationError, InvalidSubmissionError, StoreError, rl_task
from relier.ledger import keys
from relier.options import TaskOptions
from relier.testing.virtual.store_clock import SECOND_US
from tests.support.crew import Crew

pytestmark = pytest.mark.anyio


@rl_task
def plain(n: int = 0) -> int:
    return n


@rl_task(admission="tenant:{tenant_id}")
def of_tenant(tenant_id: str, n: int = 0) -> int:
    return n


@rl_task(admission=Admit("mail", limit=5, window=60))
def mail(n: int = 0) -> int:
    return n


@rl_task(admission=(Admit("tenant:{tenant}", limit=10, window=60), Admit("costly", limit=12, window=60)))
def of_both(tenant: str) -> str:
    return tenant


@rl_task(admission=Admit("heavy", limit=10, window=60), admission_weight=4)
def heavy(n: int = 0) -> int:
    return n


@rl_task(idempotent=True, admission=Admit("once", limit=250, window=60))
def once(n: int) -> int:
    return n


def admitted(task: Any, times: int, *args: Any) -> int:
    """Push `times` tasks, one after the other. Return how many were admitted."""
    came = 0
    for _ in range(times):
        try:
            task.push(*args)
        except AdmissionRejectedError:
            continue
        came += 1
    return came


def refused(push: Any, *args: Any) -> AdmissionRejectedError:
    with pytest.raises(AdmissionRejectedError) as caught:
        push(*args)
    return caught.value


# --- the limits --------------------------------------------------------------------------------------------------


async def test_the_limit_of_the_namespace_comes_from_the_settings(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=10, admission_window=60.0)
    assert admitted(plain, 6) + admitted(mail, 5) == 10, "all tasks of the namespace share it"
    error = refused(plain.push)
    assert (error.limit, error.key, error.retry_after) == ("all", "", 6.0)
    assert "'all'" in str(error)
    assert "6.000 s" in str(error)


async def test_a_refused_push_writes_nothing_and_retry_after_is_exact(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=7, admission_window=10.0)
    assert admitted(plain, 9) == 7
    error = refused(plain.push)
    assert clocked.count("submitted") == 7
    wait = round(error.retry_after * SECOND_US)
    clocked.clock.set(clocked.clock.now_us + wait - 1)
    refused(plain.push)
    clocked.clock.set(clocked.clock.now_us + 1)
    plain.push()


async def test_zero_is_no_limit(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=0)
    assert admitted(plain, 20) == 20
    assert len(plain.push_many([(n,) for n in range(250)])) == 250
    assert admitted(of_tenant, 20, "a") == 20, "a limit without numbers of its own takes those of the settings: none"
    assert admitted(mail, 9) == 5, "one with numbers of its own keeps them"


async def test_a_task_can_have_its_own_limit(clocked: Crew) -> None:
    assert admitted(mail, 9) == 5
    assert admitted(plain, 9) == 9
    error = refused(mail.push)
    assert (error.limit, error.key, error.retry_after) == ("key:mail", "mail", 12.0)


async def test_each_key_has_its_own_limit(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=3, admission_window=30.0)
    assert admitted(of_tenant, 2, "a") == 2
    clocked.advance(30)
    clocked.with_settings(admission_limit=3, admission_window=30.0)
    assert admitted(of_tenant, 9, "b") == 3
    clocked.advance(10)
    error = refused(of_tenant.push_many, [("b",), ("b",)])
    assert (error.limit, error.retry_after) == ("key:tenant:b", 10.0)
    assert clocked.count("submitted") == 5


async def test_two_tasks_with_the_same_key_share_a_limit(clocked: Crew) -> None:
    @rl_task(admission=Admit("tenant:{who}", limit=10, window=60))
    def other(who: str) -> None: ...

    assert admitted(of_both, 6, "x") == 6
    assert admitted(other, 6, "x") == 4


async def test_all_limits_of_a_task_must_agree(clocked: Crew) -> None:
    assert admitted(of_both, 11, "x") == 10
    assert refused(of_both.push, "x").key == "tenant:x"
    assert admitted(of_both, 3, "y") == 2
    assert refused(of_both.push, "y").key == "costly"
    assert admitted(of_both, 1, "x") == 0


async def test_a_weight_counts_as_several_tasks(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=11, admission_window=60.0)
    assert admitted(heavy, 3) == 2
    assert refused(heavy.push).limit == "key:heavy"
    assert admitted(plain, 4) == 3, "the namespace's limit is charged the weight, too"


async def test_a_push_of_a_known_id_is_not_charged(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=3, admission_window=60.0)
    first = once.push(1)
    assert [once.push(1).id for _ in range(5)] == [first.id] * 5
    assert admitted(plain, 5) == 2
    assert once.push(1).id == first.id, "and passes where nothing new would"


# --- bulk --------------------------------------------------------------------------------------------------------


async def test_a_bulk_is_admitted_or_refused_as_a_whole(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=10, admission_window=60.0)
    plain.push_many([()] * 6)
    error = refused(plain.push_many, [()] * 5)
    assert (error.limit, error.retry_after) == ("all", 6.0)
    assert clocked.count("submitted") == 6
    assert len(await plain.apush_many([()] * 4)) == 4


@pytest.mark.parametrize("how", ["push_many", "apush_many"])
async def test_a_bulk_of_many_chunks_is_admitted_as_a_whole(clocked: Crew, how: str) -> None:
    clocked.with_settings(admission_limit=1000, admission_window=60.0)

    async def push(n: int) -> list[Any]:
        calls = [(i,) for i in range(n)]
        return await plain.apush_many(calls) if how == "apush_many" else plain.push_many(calls)

    assert len({receipt.id for receipt in await push(520)}) == 520
    with pytest.raises(AdmissionRejectedError) as caught:
        await push(481)
    assert caught.value.retry_after == pytest.approx(0.06)
    assert clocked.count("submitted") == 520
    assert len(await push(480)) == 480
    refused(plain.push)


async def test_a_bulk_over_keys_is_weighed_key_by_key(clocked: Crew) -> None:
    of_both.push_many([("x",)] * 9 + [("y",)])
    assert refused(of_both.push_many, [("y",), ("z",), ("z",)]).key == "costly"
    assert refused(of_both.push_many, [("x",)] * 2).key == "tenant:x"
    assert clocked.count("submitted") == 10
    of_both.push_many([("x",), ("y",)])
    with pytest.raises(ValueError, match="11 tasks never fit into admission limit 'key:tenant:v'"):
        of_both.push_many([("v",)] * 11)


async def test_a_bulk_above_the_burst_is_the_callers_mistake(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=150, admission_window=10.0)
    for calls in (151, 900):
        with pytest.raises(ValueError, match=rf"{calls} tasks never fit into admission limit 'all', .* 150 at once"):
            plain.push_many([()] * calls)
    with pytest.raises(InvalidSubmissionError, match="6 tasks never fit into admission limit 'key:mail'"):
        mail.push_many([()] * 6)
    with pytest.raises(ValueError, match=r"3 tasks of weight 4 never fit .* admits 10 at once"):
        heavy.push_many([()] * 3)
    assert clocked.count("submitted") == 0


async def test_only_the_new_tasks_of_a_bulk_are_charged(clocked: Crew) -> None:
    once.push_many([(n,) for n in range(50)])
    assert len(once.push_many([(n,) for n in range(100)])) == 100
    assert admitted(once, 1, 1000) == 1
    assert clocked.count("submitted") == 101
    for n in range(2000, 2149):
        once.push(n)
    assert refused(once.push, 5000).key == "once", "250 came in, no more and no fewer"


async def test_a_bulk_whose_first_chunks_are_known_is_still_charged(clocked: Crew) -> None:
    """The first chunk with a new task is charged, which need not be the first chunk."""
    clocked.with_settings(admission_limit=0)
    for _ in range(2):
        once.push_many([(n,) for n in range(200)])
    assert refused(once.push_many, [(n,) for n in range(100, 350)]).key == "once"
    assert clocked.count("submitted") == 200, "nothing of a refused bulk came in"
    receipts = once.push_many([(n,) for n in range(250)])
    assert [receipt.duplicate for receipt in receipts] == [True] * 200 + [False] * 50
    assert refused(once.push, 999).key == "once"


# --- depth and bytes ---------------------------------------------------------------------------------------------


async def test_the_depth_of_a_queue_is_limited(clocked: Crew) -> None:
    clocked.with_settings(admission_max_depth=5)
    assert admitted(plain, 9) == 5
    error = refused(plain.push)
    assert (error.limit, error.key) == ("depth:default", "")
    assert error.retry_after > 0
    plain.with_options(queue="other").push()
    clocked.start()
    plain.push()


async def test_a_bulk_counts_towards_the_depth_of_a_queue(clocked: Crew) -> None:
    """This also holds for several chunks: the first one is checked for all of them."""
    clocked.with_settings(admission_max_depth=250)
    plain.push_many([()] * 60)
    assert refused(plain.push_many, [()] * 191).limit == "depth:default"
    assert clocked.count("submitted") == 60
    plain.push_many([()] * 190)
    with pytest.raises(ValueError, match=r"251 tasks never fit into a queue .* 250"):
        plain.push_many([()] * 251)


async def test_bytes_held_by_live_tasks_are_limited(clocked: Crew) -> None:
    @rl_task
    def blob(text: str) -> None: ...

    clocked.with_settings(admission_max_bytes=5_000)
    blob.push("x" * 3_000)
    assert refused(blob.push, "x" * 2_000).limit == "bytes"
    with pytest.raises(ValueError, match="never fit"):
        blob.push("x" * 5_000)
    clocked.commit(clocked.start())
    blob.push("x" * 4_000)


async def test_a_bulk_of_many_chunks_holds_all_its_bytes(clocked: Crew) -> None:
    clocked.with_settings(admission_max_bytes=200_000)
    plain.push_many([(n,) for n in range(350)])
    held = clocked.count("bytes")
    assert held == sum(clocked.get(record.id).record.spec.held or 0 for record in every_record(clocked))
    assert held > 350 * 100
    at_most = (200_000 - held) // (held // 350)
    assert refused(plain.push_many, [(n,) for n in range(at_most + 10)]).limit == "bytes"
    assert clocked.count("submitted") == 350
    plain.push_many([(n,) for n in range(at_most - 10)])
    with pytest.raises(ValueError, match="never fit"):
        plain.push_many([(n,) for n in range(3_000)])


def every_record(crew: Crew) -> list[Any]:
    page = crew.run(crew.ledger.list("ready", "default"))
    records = list(page.records)
    while page.cursor:
        page = crew.run(crew.ledger.list("ready", "default", cursor=page.cursor))
        records += page.records
    return records


# --- when a limit cannot be read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [("HSET", "a", "b"), ("SET", "soon"), ("SET", "nan"), ("SET", "-5")])
async def test_a_limit_that_cannot_be_read_refuses(crew: Crew, damage: tuple[str, ...]) -> None:
    crew.with_settings(admission_limit=10)
    command, *value = damage
    crew.command(command, keys.spell(crew.ledger.prefix, "rate", "all"), *value)
    for push in (plain.push, lambda: plain.push_many([()] * 3)):
        with pytest.raises(StoreError):
            push()
    assert crew.count("submitted") == 0
    crew.sound = False


@pytest.mark.parametrize("damage", [("HSET", "a", "b"), ("SET", "soon")])
async def test_a_limit_that_cannot_be_read_accepts_with_fail_open(
    crew: Crew, damage: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    crew.with_settings(admission_limit=10, admission_fail_open=True)
    command, *value = damage
    crew.command(command, keys.spell(crew.ledger.prefix, "rate", "all"), *value)
    plain.push()
    await plain.apush()
    assert len(plain.push_many([()] * 9)) == 9
    assert crew.count("submitted") == 11
    assert "admission limits not checked" in caplog.text
    crew.sound = False


async def test_failing_open_is_not_for_limits_that_can_be_read(crew: Crew) -> None:
    crew.with_settings(admission_limit=3, admission_window=600.0, admission_fail_open=True)
    assert admitted(plain, 5) == 3


# --- keys and templates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenant", ["x" * 10_000, "a\nb", "\0", "ü" * 300, "{braces}", "", "\ud800"])
async def test_a_key_may_be_any_text(clocked: Crew, tenant: str) -> None:
    @rl_task(admission=Admit("tenant:{tenant}", limit=2, window=60))
    def of(tenant: str) -> None: ...

    @rl_task(admission=Admit("tenant:{tenant!r}", limit=2, window=60))
    def of_bytes(tenant: bytes) -> None: ...

    clocked.with_settings(admission_limit=0)
    if tenant == "\ud800":  # it cannot be encoded as text
        assert admitted(of_bytes, 3, b"\xff" * 3_000) == 2
        return
    assert admitted(of, 3, tenant) == 2
    assert admitted(of, 3, tenant + "!") == 2, "two keys are two limits, however long"
    shown = refused(of.push, tenant).key
    assert shown.startswith("tenant:" + tenant[:20].replace("\n", "?").replace("\0", "?"))
    assert len(shown) < 150


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{tenant}", "names {tenant}, but the function has no such argument; its arguments are: customer, cents"),
        ("{ctx}", "no such argument"),
        ("{}", "must name its arguments"),
        ("{0}", "must name its arguments"),
        ("{customer", "is not a valid template"),
        ("", "is invalid"),
    ],
)
async def test_an_invalid_template_is_refused_at_definition(template: str, complaint: str) -> None:
    from relier import TaskContext

    def charge(customer: str, cents: int, ctx: TaskContext) -> None: ...

    with pytest.raises(ConfigurationError, match=complaint):
        rl_task(admission=template)(charge)


async def test_a_template_may_look_into_an_argument(clocked: Crew) -> None:
    @rl_task(admission=Admit("{order[tenant]}/{kind!s:>4}", limit=1, window=60))
    def ship(order: dict[str, str], *, kind: str = "air") -> None: ...

    ship.push({"tenant": "a"})
    assert refused(ship.push, {"tenant": "a"}).key == "a/ air"
    with pytest.raises(InvalidSubmissionError, match="cannot be filled in from these arguments"):
        ship.push({})


@pytest.mark.parametrize(
    "given",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": 1.5},
        {"limit": True},
        {"limit": "5"},
        {"window": 0},
        {"window": -1.0},
        {"window": float("nan")},
        {"window": "1"},
        {"limit": 10, "window": 1e-6},
    ],
)
async def test_an_impossible_limit_is_refused_at_definition(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="is invalid"):
        Admit("k", **given)


@pytest.mark.parametrize("weight", [0, -1, 1.5, True, "2"])
async def test_an_impossible_weight_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigurationError, match="admission_weight"):
        TaskOptions("t", admission_weight=weight)


async def test_a_weight_above_the_limit_could_never_be_pushed(clocked: Crew) -> None:
    with pytest.raises(ConfigurationError, match=r"admission_weight is 6, but .* accepts only 5 at once"):
        TaskOptions("t", admission=Admit("k", limit=5, window=1.0), admission_weight=6)
    clocked.with_settings(admission_limit=3)
    with pytest.raises(ValueError, match="1 task of weight 4 never fits into admission limit 'all'"):
        heavy.push()


@pytest.mark.parametrize("given", [5, ["x", 5], object()])
async def test_invalid_limits_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="admission"):
        TaskOptions("t", admission=given)


# --- at once -----------------------------------------------------------------------------------------------------


async def test_concurrent_pushes_are_admitted_one_by_one(clocked: Crew) -> None:
    clocked.with_settings(admission_limit=40, admission_window=60.0)
    answers = await asyncio.gather(*(plain.apush(n) for n in range(200)), return_exceptions=True)
    assert sum(isinstance(answer, AdmissionRejectedError) for answer in answers) == 160
    assert clocked.count("submitted") == 40
