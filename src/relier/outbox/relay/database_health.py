"""The health of a relay's database: it answers, it is unreachable, or it refuses the relay.

unreachable  no connection, no answer, a restart, too many clients: waiting helps, and restarting the relay does not
refused      credentials, privileges, a missing database or table: an operator must fix it

A refusal at the start is an error. A later refusal is logged once a minute, and the relay stops touching its liveness
file.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import TypeVar

from relier.errors import OutboxDatabaseError
from relier.outbox.table.contention import contention_in
from relier.outbox.table.refusals import TABLE, refusal_in
from relier.outbox.table.statements import Database, OutboxTable, Transaction, said_by

R = TypeVar("R")

log = logging.getLogger("relier.outbox")

REPEAT_S = 60.0
SILENT_S = 10.0  # a database that does not answer for this long is unreachable
CHECK_S = 60.0  # how often a relay checks that it may still write
REFUSED_PAUSES = 5  # a refusing database is asked this many times less often, or it may lock the account


class DatabaseState(IntEnum):
    """The state of a database, as the metrics show it."""

    ANSWERS = 0
    AWAY = 1
    REFUSES = 2


class WatchedDatabase:
    """The database of one relay. `began_at`: when the transaction that is in progress began, by the relay's clock."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self.dialect = database.dialect
        self.began_at: float | None = None
        self._database = database
        self._clock = clock

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        self.began_at = self._clock()
        try:
            with self._database.begin() as tx:
                yield tx
        finally:
            self.began_at = None

    def leave_thread(self) -> None:
        self._database.leave_thread()

    def close(self) -> None:
        self._database.close()


class DatabaseHealth:
    """Tracks the state of a relay's database, and logs its changes."""

    def __init__(
        self, database: WatchedDatabase, rows: OutboxTable, table: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._rows = rows
        self._table = table
        self._clock = clock
        self._logged_at = 0.0
        self._checked_at = clock()
        self.state = DatabaseState.ANSWERS
        self.where = ""  # names the database in logs, if a process has several

    def check(self, where: str) -> None:
        """Raise at the start if the database refuses the relay. A database that is unreachable, or does not answer in
        time, is only logged. `where`: the name of the database for the error."""
        try:
            ask_within(self._database, lambda: self._check_access(where))
        except TimeoutError as error:
            self.failed(error)

    def _check_access(self, where: str) -> None:
        try:
            with self._database.begin() as tx:
                self._rows.check_access(tx)
        except Exception as error:
            advice = self._advice(error)
            if advice is None and contention_in(error) is None and answers(self._database):
                advice = TABLE
            if advice is not None:
                raise OutboxDatabaseError(
                    f"the database {where} refused the relay: {said_by(error)}; {advice}"
                ) from error
            self.failed(error)

    def check_again(self, tx: Transaction) -> None:
        """Raise if the database refuses the relay by now. Do this once a minute, and in every pass after a refusal.

        On MySQL and MariaDB a relay that finds no rows only reads. It would not notice that the server, such as a
        former primary, is read-only.
        """
        now = self._clock()
        if now >= self._checked_at + CHECK_S:
            self._rows.check_access(tx)
            self._checked_at = now

    def watch(self) -> None:
        """Report the database as unreachable if a transaction has been in progress for `SILENT_S`.

        The relay's own thread blocks in that transaction and cannot notice the silence, so call this from another
        thread.
        """
        began_at = self._database.began_at
        silent = 0.0 if began_at is None else self._clock() - began_at
        if silent >= SILENT_S:
            self.failed(TimeoutError(f"no answer for {silent:.0f} s"))

    def failed(self, error: BaseException) -> None:
        """Record an error. Log it when the state changes, and then once a minute."""
        advice = self._advice(error)
        now, state = self._clock(), DatabaseState.AWAY if advice is None else DatabaseState.REFUSES
        if state is self.state and now < self._logged_at + REPEAT_S:
            return
        self.state, self._logged_at = state, now
        named = self._named()
        if advice is None:
            log.warning("%s is unreachable: error=%s; the relay retries", named, said_by(error))
        else:
            log.error("%s refuses this relay: error=%s; rows wait; %s", named, said_by(error), advice)

    def answered(self) -> None:
        """Record that the database answered."""
        if self.state is not DatabaseState.ANSWERS:
            log.info("%s is available again", self._named())
        self.state = DatabaseState.ANSWERS

    def _named(self) -> str:
        return f"database ({self.where})" if self.where else "database"

    def _advice(self, error: BaseException) -> str | None:
        advice = refusal_in(error)
        return None if advice is None else advice.format(table=self._table)


def ask_within(database: Database, ask: Callable[[], R]) -> R:
    """Return what `ask` returns. Raise a TimeoutError if the database does not answer in time; the thread that waits
    for it is then left behind."""
    answer: SimpleQueue[tuple[R | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            answer.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the caller
            answer.put((None, error))
        finally:
            database.leave_thread()

    threading.Thread(target=run, name="relier-asks", daemon=True).start()
    try:
        found, error = answer.get(timeout=SILENT_S)
    except Empty:
        raise TimeoutError(f"no answer for {SILENT_S:g} s") from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]


def answers(database: Database) -> bool:
    """Return whether a database runs statements."""
    try:
        with database.begin() as tx:
            tx.run("SELECT 1", {})
    except Exception:  # noqa: BLE001 - any error of a driver
        return False
    return True
