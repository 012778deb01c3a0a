"""Mistakes that a type checker finds. Each line that ends in `# wrong` must be an error of mypy and of pyright."""

from __future__ import annotations

from relier import Retries, TaskContext, TaskEvent, chain, rl_task, use_hooks


@rl_task
async def charge(customer: str, cents: int = 0) -> dict[str, int]:
    return {customer: cents}


@rl_task(queue="big")
def resize(ctx: TaskContext, image: bytes, *, width: int) -> bytes:
    return image


async def pushes() -> None:
    await charge.apush(5)  # wrong
    await charge.apush("a", cent=5)  # wrong
    charge.push()  # wrong
    resize.push(b"")  # wrong
    resize.push_in(None, b"", width="1")  # wrong
    charge.with_options(delay=5).push(b"a")  # wrong
    charge.with_options(dely=5)  # wrong
    charge.with_options(eta="tomorrow")  # wrong
    charge.with_options(durability="paper")  # wrong
    (await charge.apush("a")).result().strip()  # wrong
    resize("a", width=1)  # wrong


@rl_task(retrys=3)  # wrong
async def misspelt() -> None: ...


@rl_task(retries="3")  # wrong
async def text() -> None: ...


@rl_task(on_lost="forget")  # wrong
async def unknown() -> None: ...


@rl_task(retries=Retries(backoff="1 s"))  # wrong
async def nested() -> None: ...


def of_a_context(ctx: TaskContext) -> None: ...


@rl_task(on_dead=of_a_context)  # wrong
async def hooked() -> None: ...


def of_an_event(event: TaskEvent) -> None:
    event.attempt = 2  # wrong


use_hooks(on_died=of_an_event)  # wrong


@rl_task
def double(number: int, times: int = 2) -> int:
    return number * times


double.si("one")  # wrong
double.s(1, 2, 3)  # wrong
double.s(times="two")  # wrong
chain(double)  # wrong
