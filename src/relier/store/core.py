"""Implement what the sync and the async store share: attempts, retries, confirmation of durability.

One Core belongs to one event loop or one process. Its coroutines run over an AsyncWire on a loop, or over a SyncWire
through `run_sync`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from relier.errors import RedisConnectionError, RelierError
from relier.settings import Settings
from relier.store.batch import Request, RequestBatch
from relier.store.call import Durability
from relier.store.connect.address import StoreTarget
from relier.store.connect.probe import Capabilities, capabilities_of, check_server, confirmation_of, probe_commands
from relier.store.master_lookup import MasterLookup
from relier.store.policy import AttemptError, CircuitBreaker, Clock, Deadline, RetrySchedule, more_informative
from relier.store.pool import Pool
from relier.store.replies import final_error
from relier.store.wire import Connection, Wire, pack

LONGEST_BELL = 1.0
SHORTEST_BELL = 0.05  # Redis 6.2 blocks forever with a timeout of a millisecond, and every server with 0


class Core:
    """Hold the connection pools and the circuit breaker of one loop or one process, and carry batches over them."""

    def __init__(self, settings: Settings, target: StoreTarget, lookup: MasterLookup, wire: Wire, clock: Clock) -> None:
        self._settings = settings
        self._redacted_url = target.redacted_url
        self._lookup = lookup
        self._wire = wire
        self._clock = clock
        self._pool = Pool(wire, lookup, settings, clock)
        self._bell_pool = Pool(wire, lookup, settings, clock)
        self._breaker = CircuitBreaker(clock, settings.redis_breaker_failures, settings.redis_breaker_cooldown)
        self._capabilities: Capabilities | None = None
        self._probed_generation = 0  # the generation `_capabilities` belongs to
        self._warned = False
        self.report: Callable[[float, Sequence[str]], None] | None = None  # called with each batch: seconds, errors

    def batch(self, requests: list[Request], within: float = math.inf) -> RequestBatch:
        """Return a batch of requests of one durability level. Its deadline starts now; `within` (s) shortens it."""
        return RequestBatch(requests, Deadline(self._clock, min(within, self._settings.redis_deadline)))

    async def run_batch(self, batch: RequestBatch, failure: AttemptError | None = None) -> None:
        """Give every request its answer, a reply or a RelierError, within the deadline.

        `failure` is the error of a first attempt that the caller has already made.
        """
        await self._run_attempts(batch, self._pool, failure, probed=True)
        self.report_batch(batch)

    def report_batch(self, batch: RequestBatch) -> None:
        """Report how long a batch took, and the kinds of its errors, if somebody wants to know."""
        if self.report is not None:
            errors = [type(one.answer).__name__ for one in batch.requests if isinstance(one.answer, RelierError)]
            self.report(self._clock() - batch.deadline.began, errors)

    @property
    def breaker_open(self) -> bool:
        return self._breaker.is_open

    def ready_connection(self, batch: RequestBatch) -> Connection | None:
        """Return a connection that can send the batch right now, or None. Nearly every async call takes this path."""
        if (
            batch.level is not Durability.MEMORY
            or self._probed_generation != self._lookup.generation
            or self._breaker.is_open
        ):
            return None
        return self._pool.take_nowait()

    def absorb_outcome(
        self, batch: RequestBatch, connection: Connection, outcome: list[Any] | AttemptError
    ) -> AttemptError | None:
        """Process the outcome of an exchange. Return None if every request got its final reply.

        Otherwise return the error that requires the remaining requests to be repeated.
        """
        if isinstance(outcome, AttemptError):
            self._note_failure(connection.generation)
            return outcome
        self._breaker.succeeded()
        worst = batch.absorb(outcome)
        if worst is not None and worst.new_lookup:
            self._lookup.forget(connection.generation)
        return worst

    def give_back(self, connection: Connection) -> None:
        self._pool.give_back(connection)

    @property
    def read_timeout(self) -> float:
        return self._settings.redis_read_timeout

    async def command(self, *args: Any, retry: bool) -> Any:
        """Run one raw command. Once the command was sent, it is repeated only if `retry` is true."""
        return await self._run_command(args, self._pool, probed=False, repeat=retry)

    async def wait_for_bell(self, keys: list[str], seconds: float) -> bytes | None:
        """Return the key whose doorbell rang within `seconds` (at most 1 s), or None.

        Doorbells use their own connections, not those of the pool for calls.
        """
        wait = min(max(seconds, SHORTEST_BELL), LONGEST_BELL)
        reply = await self._run_command(("BLPOP", *keys, wait), self._bell_pool, probed=False, wait=wait)
        return None if reply is None else cast(bytes, reply[0])

    async def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> None:
        """Wait at most 1 s until a stream has an entry after its position. The entry itself is read by a call."""
        wait = min(max(seconds, SHORTEST_BELL), LONGEST_BELL)
        args = ("XREAD", "COUNT", 1, "BLOCK", int(wait * 1000), "STREAMS", *positions.keys(), *positions.values())
        await self._run_command(args, self._bell_pool, probed=False, wait=wait)

    async def probe(self) -> Capabilities:
        """Ask the server again for its capabilities, and return them."""
        self._probed_generation = 0
        await self._run_command(("PING",), self._pool, probed=True)
        if self._capabilities is None:
            raise AssertionError("a batch was sent without a probe")
        return self._capabilities

    def close(self) -> None:
        self._pool.close()
        self._bell_pool.close()

    async def _run_command(
        self, args: tuple[Any, ...], pool: Pool, *, probed: bool, repeat: bool = True, wait: float = 0.0
    ) -> Any:
        request = Request(pack(args))
        batch = RequestBatch([request], Deadline(self._clock, self._settings.redis_deadline + wait))
        await self._run_attempts(batch, pool, None, probed=probed, repeat=repeat, wait=wait)
        if isinstance(request.answer, RelierError):
            raise request.answer
        return request.answer

    async def _run_attempts(
        self,
        batch: RequestBatch,
        pool: Pool,
        failure: AttemptError | RelierError | None,
        *,
        probed: bool,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> None:
        """Attempt the batch until every request has its answer. `wait`: seconds the server may block on purpose."""
        attempts = RetrySchedule(self._settings.redis_retries if repeat else 0)
        if isinstance(failure, AttemptError):
            attempts.failed(failure)
        else:
            failure = self._breaker_error()
        while failure is None or isinstance(failure, AttemptError):
            if failure is not None:
                pause = attempts.pause(failure, batch.deadline.left())
                if pause is None:
                    break
                if pause:
                    await self._wire.sleep(pause)
            before = failure
            try:
                now = await self._attempt(batch, pool, probed=probed, wait=wait)
            except RelierError as error:  # the server or the settings do not allow the request
                failure = error
                break
            if now is None:
                failure = None
                break
            attempts.failed(now)
            failure = more_informative(before, now, batch.deadline.left())
        if failure is not None:
            batch.fail(failure)
        self.finish(batch, attempts.made)

    def finish(self, batch: RequestBatch, attempts: int) -> None:
        """Turn the requests that failed into errors for the callers."""
        batch.finish(functools.partial(final_error, redacted_url=self._redacted_url, attempts=attempts))

    async def _attempt(self, batch: RequestBatch, pool: Pool, *, probed: bool, wait: float) -> AttemptError | None:
        """Send the batch's open requests once. Return the error that prevents the batch from completing, if any."""
        generation = self._lookup.generation
        deadline = batch.deadline
        try:
            connection = await pool.take(deadline)
        except AttemptError as failure:
            if failure.retry:
                self._note_failure(generation)
            return failure
        outcome: list[Any] | AttemptError
        try:
            if probed:
                await self._prepare(batch, connection, deadline)
            if batch.level is not Durability.MEMORY:
                wait = min(self._settings.redis_durability_timeout, deadline.left() / 2)
            request, expected = batch.encode(wait)
            outcome = await connection.exchange(request, expected, deadline.within(self.read_timeout + wait))
        except AttemptError as failure:
            outcome = failure
        finally:
            pool.give_back(connection)
        return self.absorb_outcome(batch, connection, outcome)

    async def _prepare(self, batch: RequestBatch, connection: Connection, deadline: Deadline) -> None:
        """Probe a master seen for the first time, and decide how to confirm the batch's durability on that master."""
        if self._capabilities is None or self._probed_generation != connection.generation:
            commands = [pack(question) for question in probe_commands(self._settings)]
            timeout = deadline.within(self._settings.redis_read_timeout)
            replies = await connection.exchange(b"".join(commands), len(commands), timeout)
            found = capabilities_of(replies)
            check_server(found, self._settings, self._redacted_url, warn=not self._warned)
            self._capabilities, self._probed_generation, self._warned = found, connection.generation, True
        if batch.level is not Durability.MEMORY:
            replicated = batch.level is Durability.REPLICATED
            replicas = self._lookup.required_replicas(self._settings.redis_replicas) if replicated else 0
            batch.confirmation = confirmation_of(batch.level, self._capabilities, replicas)

    def _note_failure(self, generation: int) -> None:
        self._lookup.forget(generation)
        self._breaker.failed()

    def _breaker_error(self) -> RedisConnectionError | None:
        seconds = self._breaker.refuses()
        if not seconds:
            return None
        failures = self._settings.redis_breaker_failures
        return RedisConnectionError(
            f"nothing was sent: the store at {self._redacted_url} failed {failures} times in a row; "
            f"the next attempt is allowed in {seconds:.3g} s; "
            f"check that the store is running and that RELIER_REDIS_URL points to it"
        )
