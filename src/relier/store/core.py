"""Implement what the sync and the async store share: attempts, retries, confirmation of durability.

One Core belongs to one event loop or one process. Its coroutines run over an AsyncWire on a loop, or over a SyncWire
through `complete`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

from relier.errors import RedisConnectionError, RelierError
from relier.settings import Settings
from relier.store.batch import Batch, Request
from relier.store.call import Durability
from relier.store.connect.address import Target
from relier.store.connect.probe import Capabilities, capabilities_of, check, confirmation_of, questions
from relier.store.policy import AttemptError, Attempts, Breaker, Clock, Deadline, more_telling
from relier.store.pool import Pool
from relier.store.replies import final_error
from relier.store.route import Route
from relier.store.wire import Connection, Wire, pack

LONGEST_BELL = 1.0
SHORTEST_BELL = 0.05  # Redis 6.2 blocks for ever with a timeout of a millisecond, and every server with 0


class Core:
    """Hold the connection pools and the circuit breaker of one loop or one process, and carry batches over them."""

    def __init__(self, settings: Settings, target: Target, route: Route, wire: Wire, clock: Clock) -> None:
        self._settings = settings
        self._shown = target.shown
        self._route = route
        self._wire = wire
        self._clock = clock
        self._pool = Pool(wire, route, settings, clock)
        self._bells = Pool(wire, route, settings, clock)
        self._breaker = Breaker(clock, settings.redis_breaker_failures, settings.redis_breaker_cooldown)
        self._found: Capabilities | None = None
        self._probed = 0  # the generation `_found` belongs to
        self._warned = False

    def batch(self, requests: list[Request], within: float = math.inf) -> Batch:
        """Return a batch of requests of one durability level. Its deadline starts now; `within` (s) shortens it."""
        return Batch(requests, Deadline(self._clock, min(within, self._settings.redis_deadline)))

    async def carry(self, batch: Batch, trouble: AttemptError | None = None) -> None:
        """Give every request its answer, a reply or a RelierError, within the deadline.

        `trouble` is the error of a first attempt that the caller has already made.
        """
        await self._travel(batch, self._pool, trouble, probed=True)

    def ready_connection(self, batch: Batch) -> Connection | None:
        """Return a connection that can send the batch right now, or None. Nearly every async call takes this path."""
        if batch.level is not Durability.MEMORY or self._probed != self._route.generation or self._breaker.is_open:
            return None
        return self._pool.take_nowait()

    def settle(self, batch: Batch, connection: Connection, outcome: list[Any] | AttemptError) -> AttemptError | None:
        """Process the outcome of an exchange. Return the error of requests to repeat, or None if all are answered."""
        if isinstance(outcome, AttemptError):
            self._broken(connection.generation)
            return outcome
        self._breaker.succeeded()
        worst = batch.absorb(outcome)
        if worst is not None and worst.elsewhere:
            self._route.lost(connection.generation)
        return worst

    def give(self, connection: Connection) -> None:
        self._pool.give(connection)

    @property
    def read_timeout(self) -> float:
        return self._settings.redis_read_timeout

    async def command(self, *args: Any, retry: bool) -> Any:
        """Run one raw command. Once the command was sent, it is repeated only if `retry` is true."""
        return await self._ask(args, self._pool, probed=False, repeat=retry)

    async def wait_for_bell(self, keys: list[str], seconds: float) -> bytes | None:
        """Return the key whose doorbell rang within `seconds` (at most 1 s), or None.

        Doorbells use connections of their own, not those of the pool for calls.
        """
        wait = min(max(seconds, SHORTEST_BELL), LONGEST_BELL)
        reply = await self._ask(("BLPOP", *keys, wait), self._bells, probed=False, wait=wait)
        return None if reply is None else cast(bytes, reply[0])

    async def probe(self) -> Capabilities:
        """Ask the server again for its capabilities, and return them."""
        self._probed = 0
        await self._ask(("PING",), self._pool, probed=True)
        if self._found is None:
            raise AssertionError("a batch travelled without a probe")
        return self._found

    def close(self) -> None:
        self._pool.close()
        self._bells.close()

    async def _ask(
        self, args: tuple[Any, ...], pool: Pool, *, probed: bool, repeat: bool = True, wait: float = 0.0
    ) -> Any:
        request = Request(pack(args))
        batch = Batch([request], Deadline(self._clock, self._settings.redis_deadline + wait))
        await self._travel(batch, pool, None, probed=probed, repeat=repeat, wait=wait)
        if isinstance(request.answer, RelierError):
            raise request.answer
        return request.answer

    async def _travel(
        self,
        batch: Batch,
        pool: Pool,
        trouble: AttemptError | RelierError | None,
        *,
        probed: bool,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> None:
        """Attempt the batch until every request has its answer. `wait`: seconds the server may block on purpose."""
        attempts = Attempts(self._settings.redis_retries if repeat else 0)
        if isinstance(trouble, AttemptError):
            attempts.failed(trouble)
        else:
            trouble = self._refusal()
        while trouble is None or isinstance(trouble, AttemptError):
            if trouble is not None:
                pause = attempts.pause(trouble, batch.deadline.left())
                if pause is None:
                    break
                if pause:
                    await self._wire.sleep(pause)
            before = trouble
            try:
                now = await self._attempt(batch, pool, probed=probed, wait=wait)
            except RelierError as error:  # the server or the settings do not allow the request
                trouble = error
                break
            if now is None:
                trouble = None
                break
            attempts.failed(now)
            trouble = more_telling(before, now, batch.deadline.left())
        if trouble is not None:
            batch.fail(trouble)
        self.finish(batch, attempts.made)

    def finish(self, batch: Batch, attempts: int) -> None:
        """Turn the requests that failed into errors for the callers."""
        batch.finish(functools.partial(final_error, shown=self._shown, attempts=attempts))

    async def _attempt(self, batch: Batch, pool: Pool, *, probed: bool, wait: float) -> AttemptError | None:
        """Send the batch's open requests once. Return the error that prevents the batch from completing, if any."""
        generation = self._route.generation
        deadline = batch.deadline
        try:
            connection = await pool.take(deadline)
        except AttemptError as trouble:
            if trouble.again:
                self._broken(generation)
            return trouble
        outcome: list[Any] | AttemptError
        try:
            if probed:
                await self._prepare(batch, connection, deadline)
            if batch.level is not Durability.MEMORY:
                wait = min(self._settings.redis_durability_timeout, deadline.left() / 2)
            request, expected = batch.encode(wait)
            outcome = await connection.exchange(request, expected, deadline.within(self.read_timeout + wait))
        except AttemptError as trouble:
            outcome = trouble
        finally:
            pool.give(connection)
        return self.settle(batch, connection, outcome)

    async def _prepare(self, batch: Batch, connection: Connection, deadline: Deadline) -> None:
        """Probe a master seen for the first time, and decide how to confirm the batch's durability on that master."""
        if self._found is None or self._probed != connection.generation:
            commands = [pack(question) for question in questions(self._settings)]
            timeout = deadline.within(self._settings.redis_read_timeout)
            replies = await connection.exchange(b"".join(commands), len(commands), timeout)
            found = capabilities_of(replies)
            check(found, self._settings, self._shown, warn=not self._warned)
            self._found, self._probed, self._warned = found, connection.generation, True
        if batch.level is not Durability.MEMORY:
            replicated = batch.level is Durability.REPLICATED
            replicas = self._route.pinned_replicas(self._settings.redis_replicas) if replicated else 0
            batch.confirmation = confirmation_of(batch.level, self._found, replicas)

    def _broken(self, generation: int) -> None:
        self._route.lost(generation)
        self._breaker.failed()

    def _refusal(self) -> RedisConnectionError | None:
        seconds = self._breaker.refuses()
        if not seconds:
            return None
        failures = self._settings.redis_breaker_failures
        return RedisConnectionError(
            f"the store at {self._shown} failed {failures} times in a row and is not asked again for {seconds:.3g} s; "
            f"nothing was sent; see that it runs and that RELIER_REDIS_URL leads to it"
        )
