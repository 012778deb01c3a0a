"""The relay: committed rows become tasks.

turn      close what was published, claim the next rows, publish them; sleep only if there were none
publish   in a window of parcels; threads only publish, and what came of it is judged and written here

A row is claimed under a lease that names this relay; every closing write checks it. Whatever dies, the row is there
until it was sent, and sending it twice is one task. An outage spends no row's retries; a row that fails alone does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from relier.outbox.publish.chunks import Parcels
from relier.outbox.publish.publisher_threads import Publishers
from relier.outbox.publish.refused_rows import Waiting
from relier.outbox.publish.target import Deferred, Failed, LedgerTarget, Outage, Outcome, Sent, Target
from relier.outbox.publish.target_breaker import Breaker
from relier.outbox.publish.target_route import Route
from relier.outbox.relay.batch import Batch, Counts
from relier.outbox.relay.claim_cursor import Place
from relier.outbox.relay.closing import Closing
from relier.outbox.relay.database_health import REFUSED_PAUSES, DatabaseHealth, DatabaseState
from relier.outbox.relay.liveness_file import LivenessFile
from relier.outbox.relay.membership import Membership, new_relay
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.upkeep import Upkeep
from relier.outbox.row import LEDGER, Row
from relier.outbox.table.statements import Database, Depth, Members, Rows, Transaction, said_by
from relier.outbox.wake.doorbell import Ear, Listener
from relier.redact import shown
from relier.submit.client import Client

log = logging.getLogger("relier.outbox")

SOONEST_S = 0.002  # after something was found, or the bell rang: so soon, then less and less often
ALONE = 5  # a relay that no bell wakes looks so many times as often
GLANCE_S = 0.5  # how often it looks around while others publish


class Belongs(Protocol):
    """The relay's place among the members: `Membership`, or a share in the process's."""

    @property
    def boot(self) -> str: ...

    def members(self) -> Members | None: ...

    def begin(self) -> None: ...

    def end(self, within: float = ...) -> None: ...


class Relay:
    """One relay. `run` blocks until `stop`; `arun` is the same inside an asyncio application.

    `membership` and `listener`: for one that is to be a member, and to be woken; see `relay_to_ledger`. `show`: what of
    an error's text, of that task, may be kept and logged.
    """

    def __init__(
        self,
        database: Database,
        targets: Sequence[Target],
        options: RelayOptions | None = None,
        membership: Belongs | None = None,
        listener: Callable[[Callable[[], None]], Ear] | None = None,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[str, str], str] = lambda _, text: text,
    ) -> None:
        self.options = options or RelayOptions()
        self.counts = Counts()
        self._database = database
        cooldown = self.options.broker_outage_cooldown
        self._routes = {target.kind: Route(target, cooldown, clock) for target in targets}
        self._rows = Rows(database.dialect, self.options.table, self._routes, ordered=self.options.ordered)
        self._closing = Closing(self._rows, self.options, show)
        self._waiting = Waiting(clock)
        self._place = Place(clock, self.options.idle_time)
        self._handed_out: Batch | None = None
        self._membership = membership
        self._own_boot = new_relay()  # for one that is no member
        self._listener = None if listener is None else listener(self.wake)
        self._clock = clock
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._calm = 0
        self._liveness = LivenessFile(self.options.liveness_file)
        self._upkeep = Upkeep(database, self._rows, self.options, self._routes, clock)
        self.health = DatabaseHealth(database, self._rows, self.options.table, clock)
        self._stopped_at = 0.0
        self._publishers = Publishers(self.options.publish_concurrency)
        self.labels: dict[str, str] = {}  # in the metrics, where a process has several relays
        self.has_left = threading.Event()  # its rows are closed or given back

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        if self._membership is not None:
            self._membership.begin()
        if self._listener is not None:
            self._listener.start()
        done = Batch(self.boot)
        try:
            while not self._stop.is_set():
                done = self.turn(done)
            self._leave(done)
        finally:
            self.close()

    def _leave(self, done: Batch) -> None:
        try:
            self._exchange(done, 0)
            self._give_back()
            self.has_left.set()
        except Exception as error:  # noqa: BLE001 - what was sent is sent again, which is one task
            log.warning("the last batch could not be closed; %d rows stay leased: %s", len(done.rows), said_by(error))

    def _give_back(self) -> None:
        """What a limit refused waits in the table, for any relay."""
        waiting = self._waiting.all(self.boot)
        if waiting:
            with self._database.begin() as tx:
                outcomes: dict[int, Outcome] = {row.id: Deferred(seconds) for row, seconds in waiting}
                self._closing.close(tx, Batch(self.boot, [row for row, _ in waiting], outcomes))

    async def arun(self) -> None:
        """As a task of an application: cancel it, and it drains."""
        running = asyncio.create_task(asyncio.to_thread(self.run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def stop(self) -> None:
        """Drain: what is being sent is waited for, nothing else begins. From any thread; see `process.py`."""
        self._stopped_at = self._stopped_at or time.monotonic()
        self._stop.set()
        self._woken.set()

    def wake(self) -> None:
        """There may be rows."""
        self._woken.set()

    def turn(self, done: Batch) -> Batch:
        """Close one batch, claim and publish the next; where there is none, wait. Answers with what is to be closed."""
        self._touch()
        self._upkeep.look()
        try:
            batch = self._exchange(done, self.options.batch_size)
        except Exception as error:  # noqa: BLE001 - the database is away, or refuses: nothing is lost, its rows are there
            self.health.failed(error)
            self._rest_from_database()
            return done
        self.health.answered()
        if not batch.rows:
            self._rest(self._waiting.pause(self._closed_for() or self._pause()))
            return batch
        self._calm = 0
        self._publish(batch)
        return batch

    def depth(self) -> Depth | None:
        """The table's, as it was lately; None before the first look. Asking for it makes the relay look."""
        return self._upkeep.depth()

    def drain(self) -> int:
        """Send all that is due, and answer how many were sent: for tests and scripts. What is away is left out."""
        before, done = self.counts.published, Batch(self.boot)
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
    def boot(self) -> str:
        """Who it is, in the rows it holds and among the members."""
        return self._own_boot if self._membership is None else self._membership.boot

    @property
    def breakers(self) -> dict[str, Breaker]:
        """By the kind of rows: that of each target."""
        return {kind: route.breaker for kind, route in self._routes.items()}

    def _closed_for(self) -> float:
        """How long until something may be tried, where every target is away (s)."""
        return min((route.breaker.wait for route in self._routes.values()), default=0.0)

    def _pause(self) -> float:
        """Short after something happened, longer and longer when nothing does."""
        hears = self._listener is not None and self._listener.hears
        longest = self.options.idle_time if hears else self.options.idle_time / ALONE
        self._calm += 1
        return float(min(longest, SOONEST_S * 2 ** min(self._calm, 30)))

    def _rest(self, seconds: float) -> None:
        if self._woken.wait(min(seconds, self.options.idle_time)):
            self._woken.clear()
            self._calm = 0

    def _rest_from_database(self) -> None:
        if self.health.state is DatabaseState.REFUSES:
            self._stop.wait(REFUSED_PAUSES * self.options.idle_time)
        else:
            self._rest(self.options.idle_time)

    def _touch(self) -> None:
        """Not while the database refuses this relay: a restart says why, and ends there."""
        if self.health.state is not DatabaseState.REFUSES:
            self._liveness.touch()

    # --- the database: this thread alone -------------------------------------------------------------------------

    def _exchange(self, done: Batch, want: int, *, probe: bool = True) -> Batch:
        """Close a batch and claim the next, in one transaction. `probe`: targets that were away get one row to try, and
        what a limit refuses stays in hand; without it, everything is looked at and nothing is kept."""
        claims = self._claims(want, probe) if want else []
        batch = Batch(self.boot)
        kept = self._waiting.may_keep(done.rows, done.outcomes) if probe and want and done.boot == batch.boot else []
        if not done.rows and not claims:
            return batch
        if done is not self._handed_out or any(not isinstance(done.outcomes.get(row.id), Sent) for row in done.rows):
            self._place.forget()  # a claim whose answer was lost, and what is given back, stand before it
        self._handed_out = None
        with self._database.begin() as tx:
            self._closing.close(tx, done, {row.id for row in kept})
            batch.renewed_at = self._clock()
            if self._waiting.must_renew(self.options.stale_timeout_seconds / 3):
                self._rows.renew(tx, batch.boot, self._waiting.ids())
            for kinds, most in claims:
                batch.rows = [*batch.rows, *self._claim(tx, batch.boot, kinds, most, kept, whole=not probe)]
        self._waiting.keep(batch.boot, kept, done.outcomes)
        ready = self._waiting.ready(batch.boot) if want else []
        if ready:
            self._place.forget()  # more of the same task may stand before it
        batch.rows = [*ready, *batch.rows]
        self._handed_out = batch
        return batch

    def _claim(
        self, tx: Transaction, boot: str, kinds: list[str], most: int, kept: Sequence[Row], *, whole: bool
    ) -> list[Row]:
        members = self._membership.members() if self._membership is not None else None
        stale_ms = round(1000 * self.options.stale_timeout_seconds)
        after = None if whole or self.options.ordered else self._place.after(kinds)
        began = self._clock() if after is None else None
        groups = self._waiting.groups_with(kept)
        rows = self._rows.claim(tx, boot, most, stale_ms, members, kinds, groups, after)
        if most > 1 or after is not None:
            self._place.claimed(kinds, rows, began)
        return rows

    def _claims(self, want: int, probe: bool) -> list[tuple[list[str], int]]:
        """Which kinds of rows are claimed, and how many: all in one go, but for those that only try."""
        states = {kind: route.breaker.state for kind, route in self._routes.items()}
        flowing = [kind for kind, state in states.items() if state == "closed"]
        trying = [kind for kind, state in states.items() if state == "half-open" and probe]
        return [*([(flowing, want)] if flowing else []), *(([kind], 1) for kind in trying)]

    def _keep(self, batch: Batch) -> None:
        """While it publishes: it lives, and its rows stay its own."""
        self._touch()
        now = self._clock()
        if now < batch.renewed_at + self.options.stale_timeout_seconds / 3:
            return
        batch.renewed_at = now
        try:
            with self._database.begin() as tx:
                self._rows.renew(tx, batch.boot, [*(row.id for row in batch.rows), *self._waiting.ids()])
        except Exception as error:  # noqa: BLE001 - then another relay may send them too, which is one task
            log.warning("the lease of %d rows could not be renewed: %s", len(batch.rows), said_by(error))

    # --- publishing ----------------------------------------------------------------------------------------------

    def _publish(self, batch: Batch) -> None:
        """Every row gets its outcome, or none if it was not begun: the breaker opened, the relay shall stop, or a row
        of its key before it was not sent."""
        window = self._publishers
        parcels = Parcels(batch.rows, self.options.publish_concurrency, self._parcel_size)
        while True:
            while window.has_room and (parcel := self._next(parcels, [one.parcel for one in window.under_way])):
                window.begin(self._send, parcel, self._routes[parcel[0].kind].limit)
            if not window.under_way:
                return
            for publish in window.wait(min(GLANCE_S, self._time_to_leave())):
                if publish.error is not None:
                    raise publish.error
                self._heard(batch, parcels, publish.parcel, publish.outcomes)
            self._keep(batch)
            if window.under_way and self._time_to_leave() <= 0:
                self._abandon(batch)
                return

    def _abandon(self, batch: Batch) -> None:
        """The relay leaves without them. Nobody knows whether they were sent: another relay sends them again."""
        lost = {row.id for publish in self._publishers.under_way for row in publish.parcel}
        log.warning("%d publishes did not end in time; their rows stay leased", len(self._publishers.under_way))
        for publish in list(self._publishers.under_way):
            self._publishers.give_up(publish)
        batch.rows = [row for row in batch.rows if row.id not in lost]

    def _time_to_leave(self) -> float:
        """How long it may go on once it was told to stop (s)."""
        if not self._stop.is_set():
            return math.inf
        return max(0.0, self._stopped_at + self.options.shutdown_timeout - time.monotonic())

    def _next(self, parcels: Parcels, under_way: Iterable[Sequence[Row]] = ()) -> Sequence[Row]:
        """The next parcel, asked for one by one, as a breaker may open meanwhile; empty: there is none now."""
        while not self._stop.is_set() and (parcel := parcels.next(under_way)):
            if self._routes[parcel[0].kind].breaker.state != "open":
                return parcel
            for row in parcel:
                parcels.hold(row)
        return ()

    def _parcel_size(self, kind: str) -> int:
        return self._routes[kind].target.parcel

    def _send(self, parcel: Sequence[Row]) -> list[Outcome]:
        return self._routes[parcel[0].kind].target.publish(parcel)

    def _heard(self, batch: Batch, parcels: Parcels, parcel: Sequence[Row], outcomes: Sequence[Outcome]) -> None:
        """Judge what a thread has told; in the main thread, one at a time."""
        self.counts.outages += sum(isinstance(outcome, Outage) for outcome in outcomes)
        judged = self._routes[parcel[0].kind].judge(parcel, outcomes)
        for row, outcome in zip(parcel, judged, strict=True):
            batch.outcomes[row.id] = outcome
            self._count(row, outcome)
            if not isinstance(outcome, Sent):
                parcels.hold(row)

    def _count(self, row: Row, outcome: Outcome) -> None:
        counts = self.counts
        if isinstance(outcome, Sent):
            counts.published += 1
            counts.lag_ms = row.age_ms
        elif isinstance(outcome, Deferred):
            counts.deferred += 1
        elif isinstance(outcome, Failed):
            final = outcome.final or row.retries >= self.options.max_retries
            counts.dead, counts.failed = counts.dead + final, counts.failed + (not final)


def ledger_target(client: Client, options: RelayOptions) -> LedgerTarget:
    """The ledger as a target. A call may take half of the send timeout: one without an answer is followed by the
    question whether the store is away."""
    return LedgerTarget(Client(client.settings.model_copy(update={"redis_deadline": options.send_timeout / 2})))


def relay_to_ledger(
    database: Database,
    client: Client,
    options: RelayOptions | None = None,
    others: Sequence[Target] = (),
    listener: Callable[[Callable[[], None]], Ear] | None = None,
) -> Relay:
    """A relay whose rows become records: a member of the cluster, woken by commits through the ledger's store, or by
    `listener`. `others`: targets for other kinds of rows."""
    options = options or RelayOptions()
    settings = client.settings
    return Relay(
        database,
        [ledger_target(client, options), *others],
        options,
        Membership(
            settings,
            client.scripts,
            lambda: {"tables": [options.table], "kinds": [LEDGER, *(other.kind for other in others)]},
        ),
        None if options.no_wake else listener or (lambda wake: Listener(settings, client.scripts, wake)),
        show=lambda name, text: str(shown(settings, name, text)),
    )
