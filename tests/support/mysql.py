"""A MySQL server for tests. Debian's stable releases have none: .ci/install-mysql installs one."""

from __future__ import annotations

import os
import subprocess
from functools import cache

from tests.support.databases import MariaDB, flags, which
from tests.support.servers import skip_without

MYSQLD = "RELIER_TESTS_MYSQLD"  # the command that starts it, as .ci/install-mysql prints it

CONFIG = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
    "mysqlx": "OFF",
    "secure-file-priv": "NULL",
    "skip-log-bin": None,
    "innodb-buffer-pool-size": "16M",
    "innodb-redo-log-capacity": "16M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-doublewrite": "OFF",
    "max-connections": "200",
}
# Who connects by TCP is 127.0.0.1, where names are not resolved; the first user is of localhost alone.
ADMINISTRATOR = "CREATE USER IF NOT EXISTS root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;"


class MySQL(MariaDB):
    def require(self) -> None:
        require_mysql()

    def make(self) -> None:
        (self.folder / "init.sql").write_text(ADMINISTRATOR.replace("; ", ";\n"))
        self._run(mysqld(), "--no-defaults", "--initialize-insecure", *flags(CONFIG | self._places()))

    def command(self) -> list[str]:
        own = self._places() | {"init-file": self.folder / "init.sql", "port": self.port}
        return [mysqld(), "--no-defaults", *flags(CONFIG | own)]

    def _places(self) -> dict[str, object]:
        return {
            "datadir": self.folder / "data",
            "socket": self.folder / "s",
            "pid-file": self.folder / self.pid_file,
            "tmpdir": self.folder,
        }


def require_mysql() -> None:
    """Skip the test if MySQL is not installed. In CI it must be, unless it could not be installed."""
    if not mysqld():
        skip_without("mysql", f"no MySQL here: export {MYSQLD}=$(.ci/install-mysql)")


@cache
def mysqld() -> str:
    """Return MySQL's server program, not MariaDB's, which has the same name."""
    found = os.environ.get(MYSQLD) or which("mysqld")
    if not found:
        return ""
    told = subprocess.run(
        [found, "--no-defaults", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    return "" if "MariaDB" in told.stdout or told.returncode else found
