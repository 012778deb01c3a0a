"""Steps are identified by name and use: branches may interleave, names may repeat, and older journals can be read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relier import InvalidSubmissionError, Retries, Settings, StepJournalError, TaskContext, rl_task
from relier.run.outcome import Done, Failed, Outcome
from tests.support.crew import QUICK, Crew
from tests.support.servers import Boot

pytestmark = pytest.mark.anyio

script: dict[str, Callable[[TaskContext], Any]] = {}


@rl_task(retries=Retries(attempts=8, backoff=0.0, jitter=0.0))
async def work(ctx: TaskContext) -> Any:
    return await script["now"](ctx)


@rl_task(retries=Retries(attempts=8, backoff=0.0, jitter=0.0))
def work_sync(ctx: TaskContext) -> Any:
    return script["now"](ctx)


class Effects:
    """Functions that record their calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str) -> str:
        self.called.append(name)
        return f"result of {name}"


def refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, StepJournalError), outcome.error
    return str(outcome.error)


class OldJournal:
    """The way in which the previous release reads a journal and places its steps: by the order in which they begin, on
    any branch. It finds a step only by its name and at its place."""

    def __init__(self, recorded: dict[str, bytes]) -> None:
        self.recorded = {name: (int(raw.split(b":")[0]), raw.partition(b":")[2]) for name, raw in recorded.items()}
        self.names = {place: name for name, (place, _) in self.recorded.items()}
        self.called: dict[str, int] = {}

    def begin(self, name: str) -> bytes | None:
        place = len(self.called) + 1
        if name in self.called:
            raise StepJournalError("called twice in one run")
        self.called[name] = place
        was = self.names.get(place)
        if (was is not None and was != name) or (name in self.recorded and self.recorded[name][0] != place):
            raise StepJournalError("the code changed")
        return self.recorded[name][1] if name in self.recorded else None


# --- branches ----------------------------------------------------------------------------------------------------


async def two_branches(ctx: TaskContext, effect: Effects, order: str, fails: bool) -> Any:
    """Run two branches with two steps each, which begin in the order that the test gives."""
    turns = {n: asyncio.Event() for n in range(len(order) + 1)}
    turns[0].set()

    async def branch(name: str) -> list[str]:
        found = []
        mine = [n for n, whose in enumerate(order) if whose == name]
        for use, n in enumerate(mine, 1):
            await turns[n].wait()
            found.append(await ctx.step(f"{name}{use}", effect, f"{name}{use}"))
            turns[n + 1].set()
        return found

    before = await ctx.step("before", effect, "before")
    found = await asyncio.gather(branch("a"), branch("b"))
    after = await ctx.step("after", effect, "after") if not fails else None
    if fails:
        raise OSError("and then the process died")
    return [before, *found, after]


@pytest.mark.parametrize("now", ["abab", "baba", "bbaa", "aabb", "abba"])
async def test_branches_may_begin_their_steps_in_another_order(crew: Crew, now: str) -> None:
    effect = Effects()
    script["now"] = lambda ctx: two_branches(ctx, effect, "abab", fails=True)
    receipt = work.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: two_branches(ctx, effect, now, fails=False)
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.result(5) == [
        "result of before",
        ["result of a1", "result of a2"],
        ["result of b1", "result of b2"],
        "result of after",
    ]
    assert sorted(effect.called) == ["a1", "a2", "after", "b1", "b2", "before"], "each effect happened once"


@pytest.mark.parametrize("recorded", range(1, 4))
@pytest.mark.parametrize("now", ["abab", "baba", "bbaa", "abba"])
async def test_branches_may_reorder_after_an_attempt_that_died_early(crew: Crew, now: str, recorded: int) -> None:
    """The process died after that many steps of the branches, and the next attempt interleaves them differently."""
    effect = Effects()

    def dying(name: str) -> str:
        if len(effect.called) > recorded:
            raise OSError("and then the process died")
        return effect(name)

    script["now"] = lambda ctx: two_branches(ctx, dying, "abab", fails=True)  # type: ignore[arg-type]
    work.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: two_branches(ctx, effect, now, fails=False)
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert sorted(effect.called) == ["a1", "a2", "after", "b1", "b2", "before"]


async def test_consumers_of_one_queue_may_share_the_work_differently(crew: Crew) -> None:
    """In each attempt, the consumers may take different items."""
    effect = Effects()

    async def do(ctx: TaskContext, hand: list[int], fails: bool) -> Any:
        orders: dict[int, list[int]] = {0: [], 1: []}
        for item, whose in enumerate(hand):
            orders[whose].append(item)

        async def consumer(whose: int) -> None:
            for item in orders[whose]:
                await ctx.step(f"mail {item}", effect, str(item))

        await asyncio.gather(consumer(0), consumer(1))
        if fails:
            raise OSError
        return "done"

    script["now"] = lambda ctx: do(ctx, [0, 1, 0, 1], fails=True)
    work.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: do(ctx, [1, 1, 0, 0, 1], fails=False)
    assert await crew.execute(crew.begin()) == Done(b'"done"')
    assert sorted(effect.called) == ["0", "1", "2", "3", "4"]


async def test_threads_are_branches_too(crew: Crew) -> None:
    effect = Effects()

    def do(ctx: TaskContext, names: str, fails: bool) -> Any:
        ctx.step_sync("before", effect, "before")
        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(names, pool.map(lambda name: ctx.step_sync(name, effect, name), names), strict=True))
        if fails:
            raise OSError
        return [found[name] for name in sorted(found)] + [ctx.step_sync("after", effect, "after")]

    script["now"] = lambda ctx: do(ctx, "abcdefgh", fails=True)
    receipt = work_sync.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: do(ctx, "hgfedcba", fails=False)
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.result(5) == [f"result of {name}" for name in "abcdefgh"] + ["result of after"]
    assert len(effect.called) == 10


@pytest.mark.parametrize("change", ["renamed", "one before", "gone"])
async def test_the_main_line_is_still_checked(crew: Crew, change: str) -> None:
    """Steps before and after branches: a changed step is refused before anything is done."""
    effect = Effects()
    names = {"renamed": ["check", "bill"], "one before": ["more", "check", "charge"], "gone": ["charge"]}[change]

    async def do(ctx: TaskContext, *main: str, fails: bool) -> Any:
        await asyncio.gather(ctx.step("a", effect, "a"), ctx.step("b", effect, "b"))
        for name in main:
            await ctx.step(name, effect, name)
        if fails:
            raise OSError
        return "done"

    script["now"] = lambda ctx: do(ctx, "check", "charge", fails=True)
    work.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: do(ctx, *names, fails=False)
    said = refused(await crew.execute(crew.begin()))
    assert "the code has changed since" in said
    assert "repeats its steps: a, b, check, charge" in said
    assert effect.called == ["a", "b", "check", "charge"], "nothing more was done"


# --- names that repeat -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["async def", "def", "branch"])
async def test_a_name_may_be_used_again(crew: Crew, way: str) -> None:
    effect = Effects()
    users = ["ann", "bob", "cy"]

    async def mail(ctx: TaskContext) -> list[str]:
        return [await ctx.step("mail", effect, user) for user in users[: 2 if ctx.attempt == 1 else 3]]

    async def do(ctx: TaskContext) -> Any:
        found = await (asyncio.get_running_loop().create_task(mail(ctx)) if way == "branch" else mail(ctx))
        if ctx.attempt == 1:
            raise OSError
        return found

    def do_sync(ctx: TaskContext) -> Any:
        found = [ctx.step_sync("mail", effect, user) for user in users[: 2 if ctx.attempt == 1 else 3]]
        if ctx.attempt == 1:
            raise OSError
        return found

    script["now"] = do_sync if way == "def" else do
    receipt = (work_sync if way == "def" else work).push()
    await crew.execute(crew.begin())
    assert sorted(crew.get(receipt.id).steps) == ["mail", "mail#2"]
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.result(5) == ["result of ann", "result of bob", "result of cy"]
    assert effect.called == users


async def test_a_name_that_two_branches_use_is_refused(crew: Crew) -> None:
    """In each attempt, another branch may be the first, so each branch might get the other's result."""
    effect = Effects()

    async def do(ctx: TaskContext) -> Any:
        mails = [ctx.step("mail", effect, "ann"), ctx.step("mail", effect, "bob")]
        first, second = await asyncio.gather(*mails, return_exceptions=True)
        assert first == "result of ann"
        raise second

    script["now"] = do
    work.push()
    for _ in range(2):
        said = refused(await crew.execute(crew.begin()))
        assert "the step 'mail' was called by two branches" in said
        assert "give each call its own name, such as 'mail 2'" in said
        assert effect.called == ["ann"]


async def test_a_step_that_runs_is_not_begun_again(crew: Crew) -> None:
    effect = Effects()
    gate = asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return effect("slow")

    async def do(ctx: TaskContext) -> Any:
        running = asyncio.get_running_loop().create_task(ctx.step("slow", slow))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running), 0.01)
        with pytest.raises(StepJournalError, match="called by two branches"):
            await ctx.step("slow", slow)
        gate.set()
        return await running

    script["now"] = do
    work.push()
    assert await crew.execute(crew.begin()) == Done(b'"result of slow"')
    assert effect.called == ["slow"]


async def test_a_name_that_collides_with_a_numbered_step(crew: Crew) -> None:
    effect = Effects()

    async def do(ctx: TaskContext) -> Any:
        await ctx.step("mail#2", effect, "other")
        await ctx.step("mail", effect, "first")
        with pytest.raises(StepJournalError, match=r"'mail#2' is used twice"):
            await ctx.step("mail", effect, "second")

    script["now"] = do
    work.push()
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert effect.called == ["other", "first"]


async def test_a_name_too_long_to_be_numbered_is_refused_before_the_effect(crew: Crew) -> None:
    effect = Effects()

    async def do(ctx: TaskContext) -> Any:
        await ctx.step("x" * 512, effect, "first")
        with pytest.raises(InvalidSubmissionError, match="with the number of its use"):
            await ctx.step("x" * 512, effect, "second")

    script["now"] = do
    work.push()
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert effect.called == ["first"]


async def test_a_step_whose_record_was_not_awaited_is_not_called_again(boot: Boot, settings: Settings) -> None:
    """A timeout hits after the effect, while the store is unreachable. The second call waits for the same record."""
    server = boot()
    patience = {"redis_deadline": 0.3, "redis_read_timeout": 0.2, "redis_breaker_cooldown": 0.1}
    crew = Crew(settings.replace(**QUICK | patience | {"redis_url": server.url}))
    effect = Effects()

    def charge() -> str:
        server.freeze()
        return effect("charge")

    async def do(ctx: TaskContext) -> Any:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await ctx.step("charge", charge)
        server.thaw()
        found = await ctx.step("charge", charge)
        assert [*crew.get(ctx.task_id).steps] == ["charge"]
        return found

    try:
        script["now"] = do
        work.push()
        assert await crew.execute(crew.begin()) == Done(b'"result of charge"')
        assert effect.called == ["charge"]
    finally:
        await crew.aclose()


# --- the release before ------------------------------------------------------------------------------------------


def written_before(crew: Crew, entries: dict[str, bytes]) -> None:
    """Create a revived task with a journal of the previous release."""
    boot = crew.join()
    lease = crew.start(boot)
    for name, entry in entries.items():
        crew.run(crew.ledger.step(lease, name, entry))
    crew.lose(boot)


@pytest.mark.parametrize("now", ["abab", "baba", "bbaa"])
async def test_journals_of_the_previous_release_are_read(crew: Crew, now: str) -> None:
    effect = Effects()
    script["now"] = lambda ctx: two_branches(ctx, effect, now, fails=False)
    receipt = work.push()
    written_before(crew, {"before": b'1:"x"', "a1": b'2:"A1"', "b1": b'3:"B1"', "a2": b'4:"A2"'})
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.result(5) == ["x", ["A1", "A2"], ["B1", "result of b2"], "result of after"]
    assert effect.called == ["b2", "after"]


async def test_journals_of_the_previous_release_are_read_after_branches(crew: Crew) -> None:
    effect = Effects()
    script["now"] = lambda ctx: two_branches(ctx, effect, "bbaa", fails=False)
    receipt = work.push()
    entries = {name: b'%d:"%s"' % (n, name.encode()) for n, name in enumerate(["before", "a1", "b1", "a2", "b2"], 1)}
    written_before(crew, entries | {"after": b'6:"after"'})
    assert isinstance(await crew.execute(crew.begin()), Done)
    assert receipt.result(5) == ["before", ["a1", "a2"], ["b1", "b2"], "after"]
    assert effect.called == []


@pytest.mark.parametrize("names", [["ship", "charge"], ["check", "charge", "ship"], ["charge", "check"], ["ship"]])
async def test_journals_of_the_previous_release_refuse_changed_code(crew: Crew, names: list[str]) -> None:
    effect = Effects()

    async def do(ctx: TaskContext) -> Any:
        for name in names:
            await ctx.step(name, effect, name)

    script["now"] = do
    work.push()
    written_before(crew, {"charge": b"1:1", "ship": b"2:2"})
    assert "the code has changed since" in refused(await crew.execute(crew.begin()))
    assert effect.called == []


async def test_the_previous_release_continues_our_journals(crew: Crew) -> None:
    """In a rolling deploy, steps that follow each other, and branches at the end, are at the places that it expects."""

    async def do(ctx: TaskContext) -> Any:
        await ctx.step("one", lambda: 1)
        await ctx.step("two", lambda: 2)
        await asyncio.gather(ctx.step("a", lambda: "a"), ctx.step("b", lambda: "b"))
        raise OSError

    script["now"] = do
    receipt = work.push()
    await crew.execute(crew.begin())
    old = OldJournal(dict(crew.get(receipt.id).steps))
    assert [old.begin(name) for name in ("one", "two", "a", "b", "more")] == [b"1", b"2", b'"a"', b'"b"', None]


@pytest.mark.parametrize("now", ["abab", "baba", "bbaa"])
async def test_the_previous_release_refuses_our_journals_rather_than_repeat_a_step(crew: Crew, now: str) -> None:
    """If in doubt, it refuses: it never calls a recorded step again, and never uses the result of another step."""
    script["now"] = lambda ctx: two_branches(ctx, Effects(), now, fails=True)
    receipt = work.push()
    await crew.execute(crew.begin())
    script["now"] = lambda ctx: behind_branches(ctx)
    await crew.execute(crew.begin())
    recorded = dict(crew.get(receipt.id).steps)
    assert "after" in recorded
    old, names = OldJournal(recorded), ["before", "a1", "b1", "a2", "b2", "after"]
    found: list[str] = []
    with contextlib.suppress(StepJournalError):
        for name in names:
            assert old.begin(name) == b'"result of %s"' % name.encode()
            found.append(name)
    assert found == names[: len(found)] != names


async def behind_branches(ctx: TaskContext) -> None:
    await two_branches(ctx, Effects(), "abab", fails=False)
    raise OSError
