"""What the outbox's proofs share: PostgreSQL, a store, a shop whose orders commit with their tasks, and relays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fleets import ROOT  # noqa: F401 - it makes the harness of the tests importable
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, insert, select
from sqlalchemy.orm import Session

from databases import Postgres
from relier import Client, Settings, rl_task, use_client
from relier.outbox import Outbox
from servers import Server

metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True, autoincrement=False))
outbox = Outbox(metadata)


@rl_task(name="shop.receipt")
def receipt(order: int) -> int:
    return order


class Desk:
    """One database, one ledger."""

    def __init__(self, database: str, settings: Settings, folder: Path) -> None:
        self.database = database
        self.settings = settings
        self.folder = folder
        self.engine: Engine = create_engine(database)
        self.client = Client(settings)
        self._relays: list[subprocess.Popen[bytes]] = []
        use_client(self.client)
        metadata.create_all(self.engine)
        self.client.open()

    def push(self, first: int, count: int, *, commit: bool = True) -> list[str]:
        """Orders and their tasks in one transaction; the tasks' ids."""
        with Session(self.engine) as session:
            session.execute(insert(orders), [{"id": first + n} for n in range(count)])
            ids = [outbox.add(session, receipt, first + n).id for n in range(count)]
            session.commit() if commit else session.rollback()
        return ids

    def relay(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--database", self.database, *options]
        with (self.folder / "relays.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.env(), stderr=log, start_new_session=True)
        self._relays.append(process)
        return process

    def env(self) -> dict[str, str]:
        given = {"RELIER_REDIS_URL": self.settings.redis_url, "RELIER_NAMESPACE": self.settings.namespace}
        return {**os.environ, **given, "RELIER_ADMISSION_LIMIT": "0"}

    def rows(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(outbox.table)).scalar_one())

    def submitted(self) -> int:
        return self.client.run(self.client.ledger.stats()).counts.get("submitted", 0)

    def end(self, *processes: subprocess.Popen[bytes]) -> None:
        for process in processes or tuple(self._relays):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in processes or tuple(self._relays):
            process.wait(60)

    def close(self) -> None:
        for process in self._relays:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.client.close()
        self.engine.dispose()


@contextlib.contextmanager
def a_postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    try:
        yield postgres.start()
    finally:
        postgres.end()


@contextlib.contextmanager
def a_desk(postgres: Postgres, server: Server | None = None) -> Iterator[Desk]:
    """A fresh database, and a store of its own unless one is given."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    database = postgres.fresh()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"embedded://{folder}/store" if server is None else server.tcp_url
        desk = Desk(database.url, Settings(redis_url=url, namespace="bench", admission_limit=0), Path(folder))
        try:
            yield desk
        finally:
            desk.close()
