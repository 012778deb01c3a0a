"""The relay: committed rows become tasks.

turn      close the published rows, claim the next rows and publish them; sleep only if there are none
publish   chunks in parallel threads; the threads only publish, and the relay's thread writes the outcomes

A row is claimed under a lease that names this relay, and every write that closes a row checks the lease. Whatever
process dies, a row stays in the table until it was sent, and a row that is sent twice becomes one task. An outage uses
up no retries of a row; a failure of the row itself does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from relier.outbox.publish.chunks import PublishChunks
from relier.outbox.publish.publisher_threads import PublisherThreads
from relier.outbox.publish.refused_rows import KeptRow, RefusedRows
from relier.outbox.publish.target import Deferred, Outage, Outcome, PublishTarget, SendFailed, Sent
from relier.outbox.publish.target_route import TargetRoute
from relier.outbox.relay.batch import ClaimedBatch, RelayCounts
from relier.outbox.relay.claim_cursor import ClaimCursor
from relier.outbox.relay.closing import BatchCloser
from relier.outbox.relay.database_health import REFUSED_PAUSES, DatabaseHealth, DatabaseState, WatchedDatabase
from relier.outbox.relay.liveness_file import LivenessFile
from relier.outbox.relay.membership import RelayMembership, new_relay
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.upkeep import Upkeep
from relier.outbox.row import Row
from relier.outbox.table.statements import Database, Depth, OutboxTable, Transaction, said_by
from relier.outbox.wake.doorbell import WakeListener
from relier.store.policy import CircuitBreaker
from relier.trace import relay_span

log = logging.getLogger("relier.outbox")

SOONEST_S = 0.002  # the pause after a row was found or the doorbell rang; it doubles from then on
UNWOKEN_POLLS = 5  # a relay that no commit can wake polls this many times as often
ROOM = {"closed": math.inf, "half-open": 1, "open": 0}  # rows that are tried at once, by the state of the breaker
CHECK_EVERY_S = 0.5  # how often the relay checks on its publishing threads


class Relay:
    """One relay. `run` blocks until `stop`; `arun` is the same inside an asyncio application.

    `membership`: makes the relay a member of the cluster. `listener`: wakes the relay. See to_ledger.py. `show`:
    redacts the text of a task's error before it is stored and logged.
    """

    def __init__(
        self,
        database: Database,
        targets: Sequence[PublishTarget],
        options: RelayOptions | None = None,
        membership: RelayMembership | None = None,
        listener: Callable[[Callable[[], None]], WakeListener] | None = None,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[str, str], str] = lambda _, text: text,
    ) -> None:
        self.options = options or RelayOptions()
        self.counts = RelayCounts()
        self._database = WatchedDatabase(database, clock)
        cooldown = self.options.broker_outage_cooldown
        self._routes = {target.kind: TargetRoute(target, cooldown, clock) for target in targets}
        self._rows = OutboxTable(database.dialect, self.options.table, self._routes, ordered=self.options.ordered)
        self._closing = BatchCloser(self._rows, self.options, show)
        self._refused = RefusedRows(clock)
        self._cursor = ClaimCursor(clock, self.options.idle_time)
        self._handed_out: ClaimedBatch | None = None
        self._membership = membership
        self._own_id = new_relay()  # for a relay that is not a member
        self._listener = None if listener is None else listener(self.wake)
        self._clock = clock
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._idle_turns = 0
        self._liveness = LivenessFile(self.options.liveness_file)
        self._upkeep = Upkeep(self._database, self._rows, self.options, self._routes, clock)
        self.health = DatabaseHealth(self._database, self._rows, self.options.table, clock)
        self._stopped_at = 0.0
        self._publishers = PublisherThreads(self.options.publish_concurrency)
        self.labels: dict[str, str] = {}  # in the metrics, if a process has several relays
        self.passed_at = clock()  # when its thread last ran (monotonic)
        self.has_left = threading.Event()  # its rows are closed or released

    # --- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop`, then close."""
        if self._membership is not None:
            self._membership.begin()
        if self._listener is not None:
            self._listener.start()
        done = ClaimedBatch(self.relay_id)
        try:
            while not self._stop.is_set():
                done = self.turn(done)
            self._leave(done)
        finally:
            self.close()

    def _leave(self, done: ClaimedBatch) -> None:
        try:
            self._exchange(done, 0)
            self._release_refused()
            self.has_left.set()
        except Exception as error:  # noqa: BLE001 - rows that were sent are sent again, as the same task
            log.warning("last batch not closed: rows=%d error=%s; the rows stay leased", len(done.rows), said_by(error))

    def _release_refused(self) -> None:
        """Return rows that a limit refused to the table, for any relay."""
        waiting = self._refused.all(self.relay_id)
        if waiting:
            with self._database.begin() as tx:
                outcomes: dict[int, Outcome] = {row.id: Deferred(seconds) for row, seconds in waiting}
                self._closing.close(tx, ClaimedBatch(self.relay_id, [row for row, _ in waiting], outcomes))

    async def arun(self) -> None:
        """Run as an asyncio task of an application. Cancel the task to shut the relay down."""
        running = asyncio.create_task(asyncio.to_thread(self.run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def stop(self) -> None:
        """Shut down: wait for publishes in progress, and start no others. Callable from any thread; see process.py."""
        self._stopped_at = self._stopped_at or time.monotonic()
        self._stop.set()
        self._woken.set()

    def wake(self) -> None:
        """Look for rows now. Callable from any thread."""
        self._woken.set()

    def turn(self, done: ClaimedBatch) -> ClaimedBatch:
        """Close a batch, then claim and publish the next; sleep if there are no rows. Return the batch to close
        next."""
        self._touch()
        self._upkeep.run_due()
        try:
            batch = self._exchange(done, 0 if self._is_draining else self.options.batch_size)
            if self._is_draining:
                self._release_refused()
        except Exception as error:  # noqa: BLE001 - the database is unreachable or refuses; the rows are still there
            self.health.failed(error)
            self._sleep_after_error()
            return done
        self.health.answered()
        if not batch.rows:
            self._sleep(self._refused.pause(self._breaker_wait() or self._pause(), self._room([])))
            return batch
        self._idle_turns = 0
        self._publish(batch)
        return batch

    def depth(self) -> Depth | None:
        """Return the table's latest row counts; None before the first count. The first call makes the relay count."""
        return self._upkeep.depth()

    def drain(self) -> int:
        """Send all due rows and return how many were sent. For tests and scripts. Targets that are unreachable are
        skipped."""
        before, done = self.counts.published, ClaimedBatch(self.relay_id)
        while True:
            done = self._exchange(done, self.options.batch_size, probe=False)
            if not done.rows:
                return self.counts.published - before
            self._publish(done)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.end()
        if self._membership is not None:
            self._membership.end(self._time_to_leave())
        self._publishers.close()
        for route in self._routes.values():
            route.target.close()
        self._database.close()

    @property
    def relay_id(self) -> str:
        """Return the relay's id, in the rows that it holds and among the members."""
        return self._own_id if self._membership is None else self._membership.relay_id

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def _is_draining(self) -> bool:
        """Whether an operator ordered the relay to claim no more rows."""
        return self._membership is not None and self._membership.is_draining

    @property
    def breakers(self) -> dict[str, CircuitBreaker]:
        """Return the breaker of each target, by the kind of its rows."""
        return {kind: route.breaker for kind, route in self._routes.items()}

    def _breaker_wait(self) -> float:
        """Return how long until a target may be tried, if every target is unreachable (s)."""
        return min((route.breaker.wait for route in self._routes.values()), default=0.0)

    def _pause(self) -> float:
        """Return the next pause: short after activity, doubling while there is none."""
        is_listening = self._listener is not None and self._listener.is_listening
        longest = self._cursor.pause(self.options.idle_time if is_listening else self.options.idle_time / UNWOKEN_POLLS)
        self._idle_turns += 1
        return float(min(longest, SOONEST_S * 2 ** min(self._idle_turns, 30)))

    def _sleep(self, seconds: float) -> None:
        if self._woken.wait(min(seconds, self.options.idle_time)):
            self._woken.clear()
            self._idle_turns = 0

    def _sleep_after_error(self) -> None:
        if self.health.state is DatabaseState.REFUSES:
            self._stop.wait(REFUSED_PAUSES * self.options.idle_time)
        else:
            self._sleep(self.options.idle_time)

    def _touch(self) -> None:
        """Touch the liveness file, but not while the database refuses this relay: a restart reports why."""
        self.passed_at = self._clock()
        if self.health.state is not DatabaseState.REFUSES:
            self._liveness.touch()

    # --- the database: this thread alone -----------------------------------------------------------------------------

    def _exchange(self, done: ClaimedBatch, want: int, *, probe: bool = True) -> ClaimedBatch:
        """Close a batch and claim the next, in one transaction. `probe`: try one row on each target that was
        unreachable, and keep refused rows in memory. Without `probe`, claims read the whole table, and no row is kept
        in memory."""
        claims = self._claims(want, probe) if want else []
        batch = ClaimedBatch(self.relay_id)
        keeps = probe and want and done.relay_id == batch.relay_id
        kept = self._refused.may_keep(done.rows, done.outcomes) if keeps else []
        if not done.rows and not claims:
            return batch
        if done is not self._handed_out or any(not isinstance(done.outcomes.get(row.id), Sent) for row in done.rows):
            self._cursor.forget()  # rows of a claim whose reply was lost, and released rows, stand before the cursor
        self._handed_out = None
        with self._database.begin() as tx:
            self.health.check_again(tx)
            self._closing.close(tx, done, {row.id for row, _ in kept})
            batch.renewed_at = self._clock()
            if self._refused.must_renew(self.options.stale_timeout_seconds / 3):
                self._rows.renew(tx, batch.relay_id, self._refused.ids())
            for kinds, most in claims:
                batch.rows = [*batch.rows, *self._claim(tx, batch.relay_id, kinds, most, kept, whole=not probe)]
        self._refused.keep(batch.relay_id, kept, done.outcomes)
        ready = self._refused.ready(batch.relay_id, self._room(batch.rows)) if want else []
        if ready:
            self._cursor.forget()  # more rows of the same task may stand before the cursor
        batch.rows = [*ready, *batch.rows]
        self._handed_out = batch
        return batch

    def _claim(
        self, tx: Transaction, relay_id: str, kinds: list[str], most: int, kept: Sequence[KeptRow], *, whole: bool
    ) -> list[Row]:
        members = self._membership.members() if self._membership is not None else None
        stale_ms = round(1000 * self.options.stale_timeout_seconds)
        after = None if whole or self.options.ordered else self._cursor.after(kinds)
        began = self._clock() if after is None else None
        groups = self._refused.groups_with(kept)
        rows = self._rows.claim(tx, relay_id, most, stale_ms, members, kinds, groups, after)
        if most > 1 or after is not None:
            self._cursor.claimed(kinds, rows, began)
        return rows

    def _claims(self, want: int, probe: bool) -> list[tuple[list[str], int]]:
        """Return the kinds to claim and how many rows of each: one claim for all healthy targets, one row for each
        probe."""
        states = {kind: route.breaker.state for kind, route in self._routes.items()}
        flowing = [kind for kind, state in states.items() if state == "closed"]
        trying = [kind for kind, state in states.items() if state == "half-open" and probe]
        return [*([(flowing, want)] if flowing else []), *(([kind], 1) for kind in trying)]

    def _room(self, claimed: Sequence[Row]) -> dict[str, float]:
        """Return how many refused rows of each kind may be tried together with the claimed ones: any number if its
        target is healthy, one in all if it is probed. Targets that are unreachable are left out."""
        states = {kind: route.breaker.state for kind, route in self._routes.items()}
        rooms = {kind: ROOM[state] - sum(row.kind == kind for row in claimed) for kind, state in states.items()}
        return {kind: room for kind, room in rooms.items() if room > 0}

    def _renew_leases(self, batch: ClaimedBatch) -> None:
        """While publishing, touch the liveness file and renew the leases."""
        self._touch()
        now = self._clock()
        if now < batch.renewed_at + self.options.stale_timeout_seconds / 3:
            return
        batch.renewed_at = now
        try:
            with self._database.begin() as tx:
                self._rows.renew(tx, batch.relay_id, [*(row.id for row in batch.rows), *self._refused.ids()])
        except Exception as error:  # noqa: BLE001 - another relay may send the rows too, as the same task
            log.warning("leases not renewed: rows=%d error=%s", len(batch.rows), said_by(error))

    # --- publishing --------------------------------------------------------------------------------------------------

    def _publish(self, batch: ClaimedBatch) -> None:
        """Publish a batch. A row has no outcome if it was not tried: the breaker opened, the relay is stopping, or an
        earlier row of its key was not sent."""
        window = self._publishers
        chunks = PublishChunks(batch.rows, self.options.publish_concurrency, self._chunk_size)
        while True:
            while window.has_room and (chunk := self._next(chunks, [one.chunk for one in window.under_way])):
                window.begin(self._send, chunk, self._routes[chunk[0].kind].limit)
            if not window.under_way:
                return
            for publish in window.wait(min(CHECK_EVERY_S, self._time_to_leave())):
                if publish.error is not None:
                    raise publish.error
                self._record_outcomes(batch, chunks, publish.chunk, publish.outcomes)
            self._renew_leases(batch)
            if window.under_way and self._time_to_leave() <= 0:
                self._abandon(batch)
                return

    def _abandon(self, batch: ClaimedBatch) -> None:
        """Abandon publishes in progress at shutdown. Whether they were sent is unknown, so another relay sends them
        again."""
        lost = {row.id for publish in self._publishers.under_way for row in publish.chunk}
        log.warning(
            "publishes did not end in time: publishes=%d rows=%d; the rows stay leased",
            len(self._publishers.under_way),
            len(lost),
        )
        for publish in list(self._publishers.under_way):
            self._publishers.give_up(publish)
        batch.rows = [row for row in batch.rows if row.id not in lost]

    def _time_to_leave(self) -> float:
        """Return how much of the shutdown timeout is left (s); infinite while the relay is not stopping."""
        if not self._stop.is_set():
            return math.inf
        return max(0.0, self._stopped_at + self.options.shutdown_timeout - time.monotonic())

    def _next(self, chunks: PublishChunks, under_way: Iterable[Sequence[Row]] = ()) -> Sequence[Row]:
        """Return the next chunk, or an empty one. Called for each chunk, because a breaker may open in between."""
        while not self._stop.is_set() and (chunk := chunks.next(under_way)):
            if self._routes[chunk[0].kind].breaker.state != "open":
                return chunk
            for row in chunk:
                chunks.hold(row)
        return ()

    def _chunk_size(self, kind: str) -> int:
        return self._routes[kind].target.chunk_size

    def _send(self, chunk: Sequence[Row]) -> list[Outcome]:
        kind = chunk[0].kind
        with relay_span(kind, [row.body for row in chunk]):
            return self._routes[kind].target.publish(chunk)

    def _record_outcomes(
        self, batch: ClaimedBatch, chunks: PublishChunks, chunk: Sequence[Row], outcomes: Sequence[Outcome]
    ) -> None:
        """Record the outcomes of a publish, in the relay's own thread."""
        self.counts.outages += sum(isinstance(outcome, Outage) for outcome in outcomes)
        classified = self._routes[chunk[0].kind].classify(chunk, outcomes)
        for row, outcome in zip(chunk, classified, strict=True):
            batch.outcomes[row.id] = outcome
            self._count(row, outcome)
            if not isinstance(outcome, Sent):
                chunks.hold(row)

    def _count(self, row: Row, outcome: Outcome) -> None:
        counts = self.counts
        if isinstance(outcome, Sent):
            counts.published += 1
            counts.lag_ms = row.age_ms
        elif isinstance(outcome, Deferred):
            counts.deferred += 1
        elif isinstance(outcome, SendFailed):
            final = outcome.final or row.retries >= self.options.max_retries
            counts.dead, counts.failed = counts.dead + final, counts.failed + (not final)
