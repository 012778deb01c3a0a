"""Errors that a database reports when two transactions conflict. They are not failures: the transaction is retried."""

from __future__ import annotations

from enum import Enum

# PostgreSQL: serialization failure, deadlock. MySQL and MariaDB: deadlock, a row that changed since the snapshot.
CLASHED = {"40001", "40P01", 1213, 1020}
# The other transaction is still open after the wait: lock_timeout, innodb_lock_wait_timeout. SQLite: busy, locked.
WAITED = {"55P03", 1205}
SQLITE_BUSY = {5, 6}
UNDONE = {1213, 1020}  # MySQL and MariaDB roll back the whole transaction; the next statement begins another
TIMED_OUT = 1205  # MySQL and MariaDB: the same, if the server is set to innodb_rollback_on_timeout
UNKNOWN_SAVEPOINT = 1305  # MySQL and MariaDB
ABORTED = "25P02"  # PostgreSQL


class Contention(Enum):
    """How a transaction lost against another. `CLASHED`: it was rolled back, and may be retried at once. `WAITED`: its
    wait for a lock timed out."""

    CLASHED = "clashed"
    WAITED = "waited"


def is_unknown_savepoint(error: BaseException) -> bool:
    """Return whether the savepoint no longer exists, which means that its transaction has ended."""
    driver = _of_driver(error)
    return driver.args[:1] == (UNKNOWN_SAVEPOINT,) or "no such savepoint" in str(driver)


def is_undone(error: BaseException) -> bool:
    """Return whether MySQL or MariaDB has rolled back the whole transaction, so that further statements run in a new
    one."""
    return _of_driver(error).args[:1] in {(code,) for code in UNDONE}


def is_timed_out(error: BaseException) -> bool:
    """Return whether a wait for a lock of MySQL or MariaDB timed out."""
    return _of_driver(error).args[:1] == (TIMED_OUT,)


def is_aborted(error: BaseException) -> bool:
    """Return whether PostgreSQL has aborted the transaction, so that a commit would be a rollback."""
    driver = _of_driver(error)
    return ABORTED in (getattr(driver, "sqlstate", None), getattr(driver, "pgcode", None))


def _of_driver(error: BaseException) -> BaseException:
    return getattr(error, "orig", None) or error.__cause__ or error


def contention_in(error: BaseException) -> Contention | None:
    """Return the conflict that an error of a driver, of SQLAlchemy or of Django reports, or None."""
    driver = _of_driver(error)
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    code = driver.args[0] if driver.args and isinstance(driver.args[0], int) else None
    if {state, code} & CLASHED:
        return Contention.CLASHED
    busy = getattr(driver, "sqlite_errorcode", 0) & 0xFF in SQLITE_BUSY
    return Contention.WAITED if busy or {state, code} & WAITED else None
