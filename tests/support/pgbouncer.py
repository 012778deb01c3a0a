"""A PgBouncer in transaction mode in front of a PostgreSQL, for tests: each transaction gets one of two connections."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.support.databases import USER, Database, DatabaseServer, Postgres, which
from tests.support.servers import skip_without

CONFIG = """\
[databases]
* = host=127.0.0.1 port={postgres}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
admin_users = {user}
pool_mode = {mode}
default_pool_size = {size}
server_round_robin = 1
max_client_conn = 100
pidfile = {folder}/pid
"""


class PgBouncer(DatabaseServer):
    users = ("postgres", "nobody")
    administration = "pgbouncer"
    ending = "SIGTERM"

    def __init__(self, postgres: Postgres, mode: str = "transaction") -> None:
        self._postgres = postgres
        self._mode = mode
        require_pgbouncer()
        super().__init__()

    def make(self) -> None:
        (self.folder / "users").write_text(f'"{USER}" ""\n')
        (self.folder / "ini").write_text(
            CONFIG.format(
                postgres=self._postgres.port,
                port=self.port,
                folder=self.folder,
                user=USER,
                mode=self._mode,
                size=2 if self._mode == "transaction" else 20,
            )
        )

    def command(self) -> list[str]:
        found = which("pgbouncer")
        assert found is not None
        return [found, str(self.folder / "ini")]

    def behind(self, database: Database) -> Database:
        """Return the same database, reached through the bouncer."""
        return self.database(database.name)

    def database(self, name: str) -> Database:
        where = f"{USER}@127.0.0.1:{self.port}/{name}"
        psycopg_url = f"postgresql+psycopg://{where}"
        return Database(self, name, psycopg_url, psycopg_url, f"postgresql+asyncpg://{where}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one command of its console, which supports only the simple query protocol."""
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=self.administration, autocommit=True, connect_timeout=5
        ) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def answers(self) -> bool:
        try:
            return bool(self.execute("SHOW VERSION"))
        except psycopg.OperationalError:
            return False


def require_pgbouncer() -> None:
    """Skip the test if PgBouncer is not installed. In CI it must be, unless it could not be installed."""
    if which("pgbouncer") is None:
        skip_without("pgbouncer", "no pgbouncer here: apt-get install pgbouncer")
