"""Errors with which a database refuses a relay: an operator must act, and waiting alone does not help."""

from __future__ import annotations

import re

from relier.errors import OutboxDatabaseError

LOGIN = "check the user, the password and the host of the connection"
NAME = "check the name of the database"
RIGHTS = "grant SELECT, UPDATE and DELETE on {table} to this user"
NAME_OR_RIGHTS = f"{NAME}, or {RIGHTS}"
TABLE = (
    "check that this is your application's database and that it has the outbox table: create the table by a migration, "
    "or with `metadata.create_all(engine)`; --table names another table"
)
OPTIONS = "check the options in the database URL: the driver does not know one of them, or its value"
PRIMARY = "connect to the primary, which can be written to"
BINLOG = "set binlog_format to ROW or MIXED: InnoDB writes no log of statements at READ COMMITTED, where relays run"
SAFE = "turn sql_safe_updates off for this user, as with init_command=SET sql_safe_updates=0 in the URL"
KEPT = "let this user delete rows: a trigger or a policy of row-level security keeps them"

# SQLSTATEs of PostgreSQL, whole or their class; numbers of MySQL and MariaDB; SQLite's primary codes, negated.
REFUSALS: dict[str | int, str] = {
    "28": LOGIN,
    "3D": NAME,
    "3F": TABLE,
    "42501": RIGHTS,
    "42P01": TABLE,
    "42703": TABLE,
    "25006": PRIMARY,
    1044: NAME_OR_RIGHTS,
    1045: LOGIN,
    1698: LOGIN,
    1049: NAME,
    1142: RIGHTS,
    1143: RIGHTS,
    1146: TABLE,
    1054: TABLE,
    1290: PRIMARY,
    1836: PRIMARY,
    1792: PRIMARY,
    1665: BINLOG,
    1175: SAFE,
    -1: TABLE,
    -3: RIGHTS,
    -8: RIGHTS,
    -14: NAME,
    -26: NAME,
}
# libpq reports no code if no connection was made.
SAID = (
    (
        re.compile(r"authentication failed|no password supplied|role .* does not exist|pg_hba\.conf|permitted to log"),
        LOGIN,
    ),
    (re.compile(r"database .* does not exist|no such database|permission denied for database"), NAME),
)


def refusal_in(error: BaseException) -> str | None:
    """Return advice if an error of a driver, SQLAlchemy or Django means that an operator must act; otherwise None."""
    if isinstance(error, OutboxDatabaseError):
        return KEPT
    driver = getattr(error, "orig", None) or error.__cause__ or error
    if isinstance(driver, TypeError | ValueError | AttributeError):  # before any database was contacted
        return OPTIONS
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None) or ""
    number = driver.args[0] if driver.args and isinstance(driver.args[0], int) else 0
    sqlite = -(getattr(driver, "sqlite_errorcode", 0) & 0xFF)
    by_code = next((REFUSALS[code] for code in (state, state[:2], number, sqlite) if code in REFUSALS), None)
    if type(driver).__name__ == "ProgrammingError" and not (state or number or sqlite):  # raised by the driver itself
        return OPTIONS
    return by_code or next((advice for pattern, advice in SAID if pattern.search(str(driver))), None)


def must_reconnect(dialect: str, error: BaseException) -> bool:
    """Return whether the next transaction needs a new connection.

    MySQL applies some rights and settings to new connections only. After a failover, a new connection leads to the new
    primary, while an old one may stay on a server that is read-only now. A connection to SQLite may be the only one to
    a database in memory.
    """
    return dialect != "sqlite" and refusal_in(error) is not None
