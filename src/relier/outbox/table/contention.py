"""What databases answer where two transactions got in each other's way: that is no failure, only "again"."""

from __future__ import annotations

from enum import Enum

# PostgreSQL: serialization failure, deadlock. MySQL and MariaDB: deadlock, a row that changed since the snapshot.
CLASHED = {"40001", "40P01", 1213, 1020}
# The other side is still at it, and was waited for: lock_timeout, innodb_lock_wait_timeout. SQLite: busy, locked.
WAITED = {"55P03", 1205}
SQLITE_BUSY = {5, 6}
UNKNOWN_SAVEPOINT = 1305  # MySQL and MariaDB
ABORTED = "25P02"  # PostgreSQL


class Contention(Enum):
    """`CLASHED`: this transaction is undone, and may begin again at once. `WAITED`: it waited long enough in vain."""

    CLASHED = "clashed"
    WAITED = "waited"


def is_unknown_savepoint(error: BaseException) -> bool:
    """Whether a savepoint is gone, and with it the transaction it was in."""
    driver = _of_driver(error)
    return driver.args[:1] == (UNKNOWN_SAVEPOINT,) or "no such savepoint" in str(driver)


def is_aborted(error: BaseException) -> bool:
    """Whether PostgreSQL takes no statement any more, and a commit would be a rollback."""
    driver = _of_driver(error)
    return ABORTED in (getattr(driver, "sqlstate", None), getattr(driver, "pgcode", None))


def _of_driver(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error.__cause__ or error


def contention_in(error: BaseException) -> Contention | None:
    """What an error of a driver, of SQLAlchemy or of Django says about other transactions."""
    driver = _of_driver(error)
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    code = driver.args[0] if driver.args and isinstance(driver.args[0], int) else None
    if {state, code} & CLASHED:
        return Contention.CLASHED
    busy = getattr(driver, "sqlite_errorcode", 0) & 0xFF in SQLITE_BUSY
    return Contention.WAITED if busy or {state, code} & WAITED else None
