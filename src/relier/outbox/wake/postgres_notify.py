"""PostgreSQL wakes a relay itself: a push says NOTIFY in its transaction, which is told when that commits.

For outboxes made with `notify=True` and relays with `--listen`: where no ledger is there to ring, or not to be asked.
PostgreSQL tells equal notices of one transaction once, and a relay that is awake is_listening no more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from relier.outbox.table.names import table_parts
from relier.outbox.wake.doorbell import WakeListener

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("relier.outbox")

WAIT_S = 1.0
DEAF = (
    "PostgreSQL's notices do not arrive, so the relay polls: its connection goes through a pooler, such as PgBouncer "
    "in transaction mode, that gives LISTEN to another connection; to be woken by commits, give --database an address "
    "of PostgreSQL itself, or of a pool in session mode"
)
NOTIFY = "SELECT pg_notify(:channel, '')"


def channel_of(table: str) -> str:
    """Where notices of that table are heard."""
    return table_parts(table)[1]


class NotifyListener(WakeListener):
    """Waits for the notice of a transaction with rows, which comes when it commits."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], table: str, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self._connect = connect
        self._channel = channel_of(table)

    def run(self) -> None:
        from psycopg import sql

        listen = sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))
        while not self._ending.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(listen)
                    if not self._arrives(connection):
                        log.warning(DEAF)
                        return
                    self._listen(connection)
            except Exception as error:  # noqa: BLE001 - the database is away: polling goes on, and this tries again
                log.info("PostgreSQL's notices are not heard: %s", error)
            self.is_listening = False
            self._ending.wait(WAIT_S)

    def _arrives(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether a notice of another connection is heard. The server's process is the one that greeted, unless there
        is a pooler between them; then it is tried."""
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        if found == (connection.info.backend_pid,):
            return True
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, '')", [self._channel])
            return any(True for _ in connection.notifies(timeout=WAIT_S, stop_after=1))

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        self.is_listening = True
        self._wake()  # something may have been committed before it listened
        while not self._ending.is_set():
            for _ in connection.notifies(timeout=WAIT_S, stop_after=1):
                self._wake()
