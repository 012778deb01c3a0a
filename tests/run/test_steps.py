"""Durable steps: done once for the life of a task, recorded under the fence, and found by later attempts. And
progress."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from click.testing import CliRunner

from relier import (
    InvalidSubmissionError,
    LeaseLostError,
    NotAwaitedError,
    PayloadEncodingError,
    PayloadTooLargeError,
    Retries,
    Settings,
    StepJournalError,
    SyncTaskReceipt,
    TaskContext,
    TaskProgress,
    TaskReceipt,
    rl_task,
)
from relier.cli.main import rl
from relier.run import context
from relier.run.outcome import Done, Failed, HandBack
from relier.states import State
from tests.support.crew import QUICK, Crew, until
from tests.support.servers import Boot

pytestmark = pytest.mark.anyio
Do = Callable[["Steps"], Any]

# The body of the tasks below: each test sets its own.
script: dict[str, Do] = {}


class Steps:
    """`ctx.step` and `ctx.step_sync` under one name, so that each behaviour is tested once: `await step(…)`."""

    def __init__(self, ctx: TaskContext) -> None:
        self.ctx = ctx

    async def __call__(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.ctx.step(name, fn, *args, **kwargs)


class SyncSteps(Steps):
    async def __call__(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.ctx.step_sync(name, fn, *args, **kwargs)


@rl_task(retries=Retries(attempts=8, backoff=0.0, jitter=0.0))
async def work(ctx: TaskContext) -> Any:
    return await script["now"](Steps(ctx))


@rl_task(retries=Retries(attempts=8, backoff=0.0, jitter=0.0))
def work_sync(ctx: TaskContext) -> Any:
    """Its coroutine never suspends: every step in it blocks."""
    try:
        script["now"](SyncSteps(ctx)).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


both = pytest.mark.parametrize("task", [work, work_sync], ids=["async def", "def"])


def calls(*names: str) -> tuple[list[str], dict[str, Callable[..., Any]]]:
    """Functions that record their calls."""
    called: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return [name, *args, kwargs] if args or kwargs else name

        return note

    return called, {name: noting(name) for name in names}


# --- once --------------------------------------------------------------------------------------------------------


@both
async def test_a_step_is_called_and_its_result_recorded_before_the_next_line(crew: Crew, task: Any) -> None:
    called, fn = calls("charge", "ship")

    async def do(step: Steps) -> Any:
        first = await step("charge", fn["charge"], "ann", cents=5)
        assert [*crew.get(step.ctx.task_id).steps] == ["charge"]
        await step("ship", fn["ship"])
        return first

    script["now"] = do
    task.push()
    assert await crew.execute(crew.begin()) == Done(b'["charge","ann",{"cents":5}]')
    assert called == ["charge", "ship"]
    assert crew.command("KEYS", f"{crew.ledger.prefix}s:*") == [], "the journal goes with the end of the task"


@both
@pytest.mark.parametrize("way", ["revive", "retry", "replay", "release"])
async def test_a_recorded_step_is_not_called_again(crew: Crew, task: Any, way: str) -> None:
    called, fn = calls("a", "b", "c")
    trouble = [1, 1, 0]

    async def do(step: Steps) -> Any:
        found = [await step("a", fn["a"], 1), await step("b", fn["b"])]
        if trouble.pop(0):
            raise OSError("not today")
        return [*found, await step("c", fn["c"])]

    script["now"] = do
    receipt = task.push()
    for _ in range(2):
        boot = crew.join()
        attempt = crew.begin(boot)
        if way == "retry":
            await crew.execute(attempt)
            continue
        await crew.run_only(attempt)
        if way == "revive":
            crew.lose(boot)
        elif way == "release":
            crew.run(crew.ledger.release([attempt.lease]))
        else:
            crew.run(crew.ledger.bury(attempt.lease, "OSError", "{}"))
            receipt.replay()
    assert await crew.execute(crew.begin()) == Done(b'[["a",1,{}],"b","c"]')
    assert called == ["a", "b", "c"]


async def test_async_steps_may_run_at_once(crew: Crew) -> None:
    called: list[str] = []
    ended = asyncio.Event()

    async def slow(name: str) -> str:
        called.append(name)
        if name == "a":
            await ended.wait()
        return name

    async def do(step: Steps) -> Any:
        return await asyncio.gather(*(step(name, slow, name) for name in "abc"))

    script["now"] = do
    receipt = work.push()
    boot = crew.join()
    running = asyncio.get_running_loop().create_task(crew.run_only(crew.begin(boot)))
    await until(lambda: [*crew.get(receipt.id).steps] == ["b", "c"])
    running.cancel()
    await asyncio.wait([running])
    crew.lose(boot)
    ended.set()
    assert await crew.execute(crew.begin()) == Done(b'["a","b","c"]')
    assert called == ["a", "b", "c", "a"], "what had not come to its end is called again, the others are not"


async def test_steps_work_in_an_isolated_process(crew: Crew) -> None:
    from tests.support.jobs import isolated as apart

    async with crew.working(modules=("tests.support.jobs.isolated",)):
        receipts = [await apart.steps.apush(), await apart.steps_sync.apush()]
        for receipt in receipts:
            assert await receipt.result(30) == {"first": 1, "second": 2, "attempt": 2}
        assert await (await apart.careful.apush()).result(30) == 1, "it gave up and was handed back: nothing was burnt"


# --- what a step may be ------------------------------------------------------------------------------------------


class Receipt(pydantic.BaseModel):
    number: int
    note: str = ""


@dataclass
class Parcel:
    weight: float


class Stamp(msgspec.Struct):
    text: str


def receipt_of(number: int) -> Receipt:
    return Receipt(number=number)


def parcels() -> list[Parcel]:
    return [Parcel(1.5)]


async def stamp_of(text: str) -> Stamp | None:
    return Stamp(text)


@both
async def test_models_come_back_by_annotation(crew: Crew, task: Any) -> None:
    async def do(step: Steps) -> Any:
        found = [await step("receipt", receipt_of, 5), await step("parcels", parcels)]
        if task is work:
            found.append(await step("stamp", stamp_of, "x"))
        seen.append(found)
        if len(seen) == 1:
            raise OSError
        return 1

    seen: list[Any] = []
    script["now"] = do
    task.push()
    await crew.execute(crew.begin())
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert seen[0] == seen[1]
    assert seen[1][:2] == [Receipt(number=5), [Parcel(1.5)]]


@both
@pytest.mark.parametrize("value", [None, False, 0, "", [], {"a": {1, 2}}, (1, None)])
async def test_any_value_may_be_a_result(crew: Crew, task: Any, value: Any) -> None:
    def make() -> Any:
        made.append(1)
        return value

    async def do(step: Steps) -> Any:
        found = await step("make", make)
        assert (found, type(found)) == (value, type(value))
        if len(made) == 1 and not made[1:] and step.ctx.attempt == 1:
            raise OSError

    made: list[int] = []
    script["now"] = do
    task.push()
    await crew.execute(crew.begin())
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert made == [1]


@both
async def test_results_that_cannot_be_stored_are_refused(crew: Crew, task: Any) -> None:
    async def do(step: Steps) -> Any:
        with pytest.raises(PayloadEncodingError, match="the result"):
            await step("object", object)
        with pytest.raises(PayloadEncodingError, match="models are rebuilt only by annotation"):
            await step("model", lambda: Receipt(number=1))
        with pytest.raises(PayloadTooLargeError, match="the result of step 'large' is 2,000,005 bytes"):
            await step("large", lambda: "x" * 2_000_000)
        return await step("small", lambda: 1)

    script["now"] = do
    task.push()
    assert await crew.execute(crew.begin()) == Done(b"1")


@both
@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513, "\0", None, 5, "\ud800"])
async def test_an_invalid_name_is_refused_before_the_effect(crew: Crew, task: Any, name: Any) -> None:
    called, fn = calls("effect")

    async def do(step: Steps) -> Any:
        with pytest.raises(InvalidSubmissionError, match="the name of a step"):
            await step(name, fn["effect"])

    script["now"] = do
    task.push()
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert called == []


async def test_a_blocking_step_cannot_await(crew: Crew) -> None:
    async def effect() -> None: ...

    async def do(step: Steps) -> Any:
        with pytest.raises(StepJournalError, match="async function, which step_sync cannot await"):
            await step("a", effect)

    script["now"] = do
    work_sync.push()
    assert isinstance(await crew.execute(crew.begin()), Done)


# --- what must be awaited ----------------------------------------------------------------------------------------


@rl_task
def forgets_the_sync(way: str, ctx: TaskContext) -> str:
    """A task by an author who does not know step_sync and set_partial_sync."""
    if way == "step":
        ctx.step("charge", lambda: 1)  # type: ignore[unused-coroutine]
    else:
        ctx.set_partial(1)  # type: ignore[unused-coroutine]
    return "done"


@pytest.mark.parametrize("way", ["step", "set_partial"])
async def test_calls_that_must_be_awaited_are_refused_at_once_in_a_def(crew: Crew, way: str) -> None:
    receipt = forgets_the_sync.push(way)
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NotAwaitedError)
    assert f"in a `def`, call ctx.{way}_sync(…)" in str(outcome.error)
    assert crew.get(receipt.id).record.state is State.DEAD


async def test_an_attempt_that_forgot_an_await_does_not_commit(crew: Crew) -> None:
    called, fn = calls("a", "b")

    async def do(step: Steps) -> Any:
        await step.ctx.step("a", fn["a"])
        step.ctx.step("b", fn["b"])  # type: ignore[unused-coroutine]
        step.ctx.set_partial("my secret")  # type: ignore[unused-coroutine]
        return "done"

    script["now"] = do
    receipt = work.push()
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NotAwaitedError)
    assert "never awaited ctx.step('b'), ctx.set_partial, so nothing of that was done" in str(outcome.error)
    assert called == ["a"]
    task = crew.get(receipt.id)
    assert (task.record.state, task.checkpoint) == (State.DEAD, None), "trying again cannot help"


async def test_a_step_that_was_only_planned_when_the_task_returned_does_not_run(crew: Crew) -> None:
    called, fn = calls("a")
    planned: list[asyncio.Task[Any]] = []

    async def do(step: Steps) -> Any:
        planned.append(asyncio.get_running_loop().create_task(step.ctx.step("a", fn["a"])))

    script["now"] = do
    work.push()
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, NotAwaitedError)
    await asyncio.wait(planned)
    assert isinstance(planned[0].exception(), RuntimeError)
    assert called == []


async def test_a_step_cancelled_before_it_began_does_not_count_as_unawaited(crew: Crew) -> None:
    called, fn = calls("a")

    async def do(step: Steps) -> Any:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(step.ctx.step("a", fn["a"]), 0)
        return "done"

    script["now"] = do
    work.push()
    assert await crew.execute(crew.begin()) == Done(b'"done"')
    assert called == []


# --- a step that raised ------------------------------------------------------------------------------------------


@both
async def test_a_step_that_raised_is_tried_again_by_the_next_attempt(crew: Crew, task: Any) -> None:
    called, fn = calls("before")
    tried: list[int] = []

    def shaky() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("busy")
        return "at last"

    async def do(step: Steps) -> Any:
        await step("before", fn["before"])
        return await step("shaky", shaky)

    script["now"] = do
    task.push()
    for _ in range(2):
        outcome = await crew.execute(crew.begin())
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ConnectionError)
    assert await crew.execute(crew.begin()) == Done(b'"at last"')
    assert (called, tried) == (["before"], [1, 1, 1])


@both
async def test_a_step_that_raised_can_be_repeated_in_the_same_attempt(crew: Crew, task: Any) -> None:
    tried: list[int] = []

    def shaky() -> str:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("busy")
        return "at last"

    async def do(step: Steps) -> Any:
        found = None
        while found is None:
            try:
                found = await step("shaky", shaky)
            except ConnectionError:
                continue
        await step("next", lambda: 1)
        if step.ctx.attempt == 1:
            raise OSError
        return found

    script["now"] = do
    task.push()
    await crew.execute(crew.begin())
    assert await crew.execute(crew.begin()) == Done(b'"at last"')
    assert tried == [1, 1, 1]


# --- code that changed under a task ------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("now", "found"),
    [
        (["ship", "charge"], "step 1 is 'ship' now, but was 'charge'"),
        (["check", "charge", "ship"], "step 1 is 'check' now, but was 'charge'"),
        (["charge", "check", "ship"], "step 2 is 'check' now, but was 'ship'"),
        (["ship"], "step 1 is 'ship' now, but was 'charge'"),
    ],
    ids=["swapped", "one before", "one between", "one gone"],
)
async def test_steps_that_do_not_fit_the_journal_are_refused(crew: Crew, task: Any, now: list[str], found: str) -> None:
    called, fn = calls("charge", "ship", "check", "more")

    def code(*names: str, fails: bool) -> Do:
        async def do(step: Steps) -> Any:
            for name in names:
                await step(name, fn[name])
            if fails:
                raise OSError
            return "done"

        return do

    script["now"] = code("charge", "ship", fails=True)
    task.push()
    await crew.execute(crew.begin())
    script["now"] = code(*now, fails=False)
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepJournalError)
    assert found in str(outcome.error)
    assert "rl dlq replay --fresh" in str(outcome.error)
    assert called == ["charge", "ship"], "nothing more was done"
    script["now"] = code("charge", "ship", "more", fails=False)
    assert isinstance(await crew.execute(crew.begin()), Done), "what comes after what is recorded may change"
    assert called == ["charge", "ship", "more"]


@both
async def test_steps_after_one_that_raised_keep_their_place(crew: Crew, task: Any) -> None:
    """The task used a fallback step. The next attempt tries the first choice again, which may then succeed."""
    called, fn = calls("fallback", "next")

    def first_choice() -> str:
        called.append("first choice")
        if called.count("first choice") == 1:
            raise ConnectionError("busy")
        return "better"

    async def do(step: Steps) -> Any:
        try:
            found = await step("first choice", first_choice)
        except ConnectionError:
            found = await step("fallback", fn["fallback"])
            raise OSError("and then the process died") from None
        return [found, await step("fallback", fn["fallback"]), await step("next", fn["next"])]

    script["now"] = do
    task.push()
    await crew.execute(crew.begin())
    assert await crew.execute(crew.begin()) == Done(b'["better","fallback","next"]')
    assert called == ["first choice", "fallback", "first choice", "next"]


async def test_an_unreadable_journal_is_reported(crew: Crew) -> None:
    async def do(step: Steps) -> Any:
        await step("a", lambda: 1)

    script["now"] = do
    work.push()
    boot = crew.join()
    crew.run(crew.ledger.step(crew.start(boot), "a", b"nonsense"))
    crew.lose(boot)
    outcome = await crew.execute(crew.begin())
    assert isinstance(outcome, Failed)
    assert "the journal entry of step 'a' cannot be read" in str(outcome.error)


# --- the fence ---------------------------------------------------------------------------------------------------


@both
async def test_a_zombie_cannot_record_and_begins_nothing_more(crew: Crew, task: Any) -> None:
    boot = crew.join()
    called, fn = calls("a", "b", "c")

    def taken_over() -> str:
        crew.lose(boot)
        return "late"

    async def do(step: Steps) -> Any:
        await step("a", fn["a"])
        if step.ctx.attempt == 2:
            return [await step("b", fn["b"]), await step("c", fn["c"])]
        with pytest.raises(LeaseLostError, match=r"refused .* under another fence"):
            await step("b", taken_over)
        return await step("c", fn["c"])

    script["now"] = do
    receipt = task.push()
    assert await crew.execute(crew.begin(boot)) == HandBack()
    assert [*crew.get(receipt.id).steps] == ["a"]
    assert called == ["a"], "a lost attempt begins no further step"
    assert await crew.execute(crew.begin()) == Done(b'["b","c"]')
    assert called == ["a", "b", "c"]


async def test_an_outage_is_waited_out(boot: Boot, settings: Settings) -> None:
    """The effect has happened. Its record must not be lost because the store was unreachable."""
    server = boot()
    patience = {"redis_deadline": 0.3, "redis_read_timeout": 0.2, "redis_breaker_cooldown": 0.1}
    crew = Crew(settings.replace(**QUICK | {"redis_url": server.url}))
    hasty = crew.another(**patience)  # of the attempt alone: it is too short for calls that nothing repeats
    called, fn = calls("a", "b")

    async def do(step: Steps) -> Any:
        await step("a", fn["a"])
        server.freeze()
        timer = threading.Timer(1.0, server.thaw)
        timer.start()
        found = await step("b", fn["b"])
        timer.join()
        return found

    try:
        for task in (work, work_sync):
            called.clear()
            script["now"] = do
            task.push()
            assert await crew.execute(crew.begin(through=hasty)) == Done(b'"b"')
            assert called == ["a", "b"]
    finally:
        await crew.aclose()


async def test_a_full_store_is_waited_out(boot: Boot, settings: Settings) -> None:
    server = boot()
    crew = Crew(settings.replace(**QUICK | {"redis_url": server.url}))

    async def do(step: Steps) -> Any:
        used = int(server.info("memory")["used_memory"])
        server.command("CONFIG", "SET", "maxmemory", used // 2)
        timer = threading.Timer(0.5, server.command, ("CONFIG", "SET", "maxmemory", 0))
        timer.start()
        found = await step("a", lambda: "kept")
        timer.join()
        return found

    try:
        script["now"] = do
        work.push()
        assert await crew.execute(crew.begin()) == Done(b'"kept"')
    finally:
        await crew.aclose()


# --- progress ----------------------------------------------------------------------------------------------------


async def told(crew: Crew, task_id: str, text: str) -> None:
    await until(lambda: crew.get(task_id).record.progress == text, 5, f"{text!r} in the record")


async def test_progress_is_reported_once_a_second_and_at_the_end(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[Any] = []
    release = asyncio.Event()

    async def do(step: Steps) -> Any:
        ctx = step.ctx
        post = ctx._channel.post
        ctx._channel.post = lambda call: (posted.append(call), post(call))  # type: ignore[assignment, method-assign]
        for n in range(1000):
            ctx.progress(n, 1000, "rows")
        await told(crew, ctx.task_id, "0 of 1000: rows")
        assert len(posted) == 1
        monkeypatch.setattr(context, "PROGRESS_EVERY_S", 0.0)
        ctx.progress(1_234_567, 2_000_000)
        await told(crew, ctx.task_id, "1234567 of 2000000")
        monkeypatch.setattr(context, "PROGRESS_EVERY_S", 3600.0)
        for _ in range(10):
            ctx.progress(2_000_000, 2_000_000, "done")
        await told(crew, ctx.task_id, "2000000 of 2000000: done")
        assert len(posted) == 3, "the end is told at once, and once"
        release.set()

    script["now"] = do
    work.push()
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert crew.count("refused") == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((3,), "3"),
        ((0.5, 1), "0.5 of 1"),
        ((1, None, "x"), "1: x"),
        ((1, 3, "ä\nö"), "1 of 3: ä\nö"),
        ((10**9, 10**10), "1000000000 of 10000000000"),
    ],
)
async def test_progress_is_stored_in_words_and_read_back_by_receipts(
    crew: Crew, arguments: tuple[Any, ...], text: str
) -> None:
    async def do(step: Steps) -> Any:
        assert await TaskReceipt[Any](step.ctx.task_id, client=crew.client).progress() is None
        step.ctx.progress(*arguments)
        await told(crew, step.ctx.task_id, text)
        found = await TaskReceipt[Any](step.ctx.task_id, client=crew.client).progress()
        assert found == TaskProgress(*arguments)

    script["now"] = do
    receipt = work.push()
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.progress() == TaskProgress(*arguments)


async def test_a_task_that_is_not_in_the_ledger_has_no_progress(crew: Crew) -> None:
    assert SyncTaskReceipt[Any]("not-sent-yet", client=crew.client).progress() is None


async def test_progress_is_shown_to_people(crew: Crew) -> None:
    gate = asyncio.Event()

    async def do(step: Steps) -> Any:
        step.ctx.progress(30, 100, "mails sent")
        await gate.wait()

    script["now"] = do
    settings = crew.client.settings
    where = ["--url", settings.redis_url, "--namespace", settings.namespace]
    async with crew.working():
        receipt = await work.apush()
        await told(crew, receipt.id, "30 of 100: mails sent")
        said = await asyncio.to_thread(CliRunner().invoke, rl, [*where, "why", receipt.id])
        assert "Progress: 30 of 100: mails sent." in said.output
        gate.set()
        await receipt.result(10)


async def test_late_progress_does_not_count_as_a_refused_commit(crew: Crew) -> None:
    work.push()
    script["now"] = None  # type: ignore[assignment]
    lease = crew.start()
    crew.commit(lease)
    answer = crew.run(crew.ledger.progress(lease, "all"))
    assert answer.verdict == "stale"
    assert crew.count("refused") == 0


async def test_progress_of_a_thread_and_after_the_loop_has_ended(crew: Crew) -> None:
    async def do(step: Steps) -> Any:
        step.ctx.progress(1, 2, "from a thread")
        kept.append(step.ctx)

    kept: list[TaskContext] = []
    script["now"] = do
    receipt = work_sync.push()
    attempt = crew.begin()
    await crew.run_only(attempt)
    await told(crew, receipt.id, "1 of 2: from a thread")
    loop = asyncio.new_event_loop()
    loop.close()
    kept[0]._channel._loop = loop
    kept[0].progress(2, 2)
    crew.commit(attempt.lease)
    assert crew.get(receipt.id).record.state is State.DONE
