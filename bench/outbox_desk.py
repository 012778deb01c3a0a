"""Shared by the outbox benchmarks: a database, a store, a shop whose orders commit with their tasks, and relays."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, insert, select
from sqlalchemy.orm import Session

from relier import Client, Settings, rl_task, use_client
from relier.outbox import Outbox
from tests.support import PYTHONPATH
from tests.support.databases import MariaDB, Postgres
from tests.support.servers import Server

metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True, autoincrement=False))
outbox = Outbox(metadata)


@rl_task(name="shop.receipt")
def receipt(order: int) -> int:
    return order


KEYS = 100  # of orders, if rows are sent in order
REPEATABLE_READ = "REPEATABLE READ"


def modes() -> argparse.Namespace:
    """Parse the options of both benchmarks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds: does it run at all")
    parser.add_argument("--database", choices=("postgres", "mariadb"), default="postgres")
    parser.add_argument("--ordered", action="store_true", help=f"relays with --ordered, orders under {KEYS} keys")
    parser.add_argument(
        "--repeatable-read", action="store_true", help="producers at REPEATABLE READ, which is MariaDB's default"
    )
    return parser.parse_args()


class Desk:
    """One database and one ledger. `keys`: the number of order keys; 0: rows have no keys."""

    def __init__(self, database: str, settings: Settings, folder: Path, isolation: str | None, keys: int) -> None:
        self.database = database
        self.keys = keys
        self.settings = settings
        self.folder = folder
        given = {"isolation_level": isolation} if isolation else {}
        self.engine: Engine = create_engine(database, **given)
        self.client = Client(settings)
        self._relays: list[subprocess.Popen[bytes]] = []
        use_client(self.client)
        metadata.create_all(self.engine)
        self.client.open()

    def push(self, first: int, count: int, *, commit: bool = True, keys: int | None = None) -> list[str]:
        """Place orders and their tasks in one transaction. Return the ids of the tasks."""
        keys = self.keys if keys is None else keys
        with Session(self.engine) as session:
            session.execute(insert(orders), [{"id": first + n} for n in range(count)])
            ids = [outbox.add(session, self.task(first + n, keys), first + n).id for n in range(count)]
            session.commit() if commit else session.rollback()
        return ids

    def task(self, order: int, keys: int) -> Any:
        return receipt.with_options(order_key=key_of(order, keys)) if keys else receipt

    def relay(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "relier.cli", "outbox", "relay", "--database", self.database, *options]
        command += ["--ordered"] * (self.keys > 0 and "--ordered" not in options)
        with (self.folder / "relays.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.env(), stderr=log, start_new_session=True)
        self._relays.append(process)
        return process

    def env(self) -> dict[str, str]:
        given = {"RELIER_REDIS_URL": self.settings.redis_url, "RELIER_NAMESPACE": self.settings.namespace}
        return {**os.environ, **given, "RELIER_ADMISSION_LIMIT": "0", "PYTHONPATH": PYTHONPATH}

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


def key_of(order: int, keys: int) -> str:
    return f"customer:{order % keys}"


@contextlib.contextmanager
def a_server(kind: str = "postgres") -> Iterator[Postgres | MariaDB]:
    server = MariaDB() if kind == "mariadb" else Postgres()
    try:
        yield server.start()
    finally:
        server.end()


@contextlib.contextmanager
def a_desk(
    databases: Postgres | MariaDB, server: Server | None = None, *, isolation: str | None = None, keys: int = 0
) -> Iterator[Desk]:
    """Create a new database, and a new store unless one is given. `isolation`: the level of the transactions that
    push."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    database = databases.fresh()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"embedded://{folder}/store" if server is None else server.tcp_url
        settings = Settings(redis_url=url, namespace="bench", admission_limit=0)
        desk = Desk(database.url, settings, Path(folder), isolation, keys)
        try:
            yield desk
        finally:
            desk.close()
