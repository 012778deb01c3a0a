"""Wake a relay through PostgreSQL: a push runs NOTIFY in its transaction, and PostgreSQL sends it at the commit.

For outboxes with `notify=True` and relays with `--listen`, where no ledger can be reached to ring its doorbell.
PostgreSQL sends equal notifications of one transaction once, and a relay that is awake needs no more of them.
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
    "PostgreSQL's notifications do not arrive, so the relay polls; the connection goes through a pooler, such as "
    "PgBouncer in transaction mode, which runs LISTEN on a different connection; to be woken by commits, point "
    "--database at PostgreSQL itself, or at a pool in session mode"
)
NOTIFY = "SELECT pg_notify(:channel, '')"


def channel_of(table: str) -> str:
    """Return the channel for notifications of a table."""
    return table_parts(table)[1]


class NotifyListener(WakeListener):
    """Waits for the notification that PostgreSQL sends when a transaction with rows commits."""

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
            except Exception as error:  # noqa: BLE001 - the database is unreachable: the relay polls, this retries
                log.info("not listening to PostgreSQL: error=%s; the relay polls, and the listener retries", error)
            self.is_listening = False
            self._ending.wait(WAIT_S)

    def _arrives(self, connection: psycopg.Connection[Any]) -> bool:
        """Return whether notifications from other connections arrive.

        If the server process is the one that accepted the connection, there is no pooler, and they do. Otherwise, send
        a notification to find out.
        """
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        if found == (connection.info.backend_pid,):
            return True
        with self._connect() as other:
            other.execute("SELECT pg_notify(%s, '')", [self._channel])
            return any(True for _ in connection.notifies(timeout=WAIT_S, stop_after=1))

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        self.is_listening = True
        self._wake()  # rows may have been committed before LISTEN
        while not self._ending.is_set():
            for _ in connection.notifies(timeout=WAIT_S, stop_after=1):
                self._wake()
