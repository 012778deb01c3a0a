"""Let a running task reach the ledger: awaited on the loop, blocking from a thread, or without waiting at all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any, TypeVar

from relier import background
from relier.codec.keyring import Keyring
from relier.errors import IndeterminateError, RelierError, StoreUnavailableError
from relier.ledger.ledger import Ledger
from relier.run.threads import Threads
from relier.settings import Settings
from relier.store.call import Call
from relier.store.sync_wire import run_sync
from relier.store.until_answered import blocking_sleep, until_answered
from relier.submit.client import Client

T = TypeVar("T")
log = logging.getLogger("relier.run")

# Errors that may go away with time. StoreReplyError is not one of them: the same call would get the same answer.
AGAIN = (StoreUnavailableError, IndeterminateError)


async def arun_until_answered(
    run: Callable[[Call[T]], Awaitable[T]],
    call: Call[T],
    lost: Callable[[], bool],
    whose: str,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> T:
    """Run the call. Retry, however long an outage lasts, until the store answers.

    An outage must neither lose the record of an effect that has happened, nor make the task fail. Give up only if the
    attempt is lost.
    """
    return await until_answered(partial(run, call), partial(_again, call, lost, whose), sleep=sleep)


def run_until_answered(run: Callable[[Call[T]], T], call: Call[T], lost: Callable[[], bool], whose: str) -> T:
    """Run the call until the store answers, like `arun_until_answered`, but block."""

    async def send(call: Call[T]) -> T:
        return run(call)

    return run_sync(arun_until_answered(send, call, lost, whose, blocking_sleep))


def _again(call: Call[Any], lost: Callable[[], bool], whose: str, error: RelierError) -> None:
    if not isinstance(error, AGAIN) or lost():
        raise error
    log.warning("%s of %s will be sent again: %s", call.script, whose, error)


class LedgerChannel:
    """Connect all attempts of one engine to the ledger. Create it on the loop that runs the attempts.

    The contexts of the attempts measure time with `clock` (s).
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, client: Client) -> None:
        self._client = self.client = client
        self.settings: Settings = client.settings
        self.keyring: Keyring = client.keyring
        self.ledger: Ledger = client.ledger
        self._loop = asyncio.get_running_loop()
        self._posts: set[asyncio.Task[None]] = set()
        self.state: Any = None  # what the lifespan of this process yielded

    def born(self, lost: Callable[[], bool]) -> str:
        """Return the store's birth mark. Ask the store for it if this process does not know it yet. Blocks."""
        birth = self._client.birth
        if not birth.mark:
            birth.learn(run_until_answered(self._client.sync_store.run, self.ledger.open(), lost, "the namespace"))
        return birth.mark

    @cached_property
    def _threads(self) -> Threads:
        threads = Threads()
        weakref.finalize(self, threads.close).atexit = False
        return threads

    async def in_own_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Run blocking work in one of our own threads. User code may keep all threads of asyncio.to_thread busy."""
        done: T = await self._threads.start(partial(work, *args), asyncio.get_running_loop()).future
        return done

    async def arun(self, call: Call[T]) -> T:
        return await self._client.arun(call)

    def run(self, call: Call[T]) -> T:
        return self._client.run(call)

    async def areport(self, call: Call[T], lost: Callable[[], bool]) -> T:
        """Report what an attempt did, and repeat the report until the store answers."""
        return await arun_until_answered(self.arun, call, lost, "task " + str(call.args[1]))

    def report(self, call: Call[T], lost: Callable[[], bool]) -> T:
        """Report what an attempt did, like `areport`, but block."""
        return run_until_answered(self.run, call, lost, "task " + str(call.args[1]))

    def post(self, call: Call[Any]) -> None:
        """Send a call from any thread, without waiting for the answer.

        If the call fails, the failure is only logged, so use this only for information that people read.
        """
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._post, call)

    def _post(self, call: Call[Any]) -> None:
        task = background.start(self._loop, self._send(call))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _send(self, call: Call[Any]) -> None:
        try:
            await self._client.arun(call)
        except RelierError as error:
            log.info("%s not sent: %s", call.script, error)
