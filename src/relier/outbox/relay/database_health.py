"""How a relay gets on with its database: it answers, it is away, or it refuses the relay.

away      no connection, a restart, too many clients: waiting mends it, and a restart of the relay would not
refused   credentials, rights, a database or a table that is not there: a person must mend it

Refused at the start is an error. Refused later, after it once worked, is logged again and again, and the relay gives no
sign of life.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from enum import IntEnum

from relier.errors import OutboxDatabaseError
from relier.outbox.table.contention import contention_in
from relier.outbox.table.statements import Database, OutboxTable, said_by

log = logging.getLogger("relier.outbox")

REPEAT_S = 60.0
REFUSED_PAUSES = 5  # a database that refuses is asked less often, by so many times: accounts are locked for less

LOGIN = "see the user, the password and the host that the relay connects with"
NAME = "see the name of the database that the relay connects to"
RIGHTS = "grant SELECT, UPDATE and DELETE on {table} to the relay's user"
TABLE = (
    "see that this is the database of your application and that its outbox table is there: make it by a migration, or "
    "with `metadata.create_all(engine)`; --table names another"
)
OPTIONS = "see the options in the URL of the database: the driver does not know one of them, or its value"
PRIMARY = "connect the relay to the primary, which can be written to"

# SQLSTATEs of PostgreSQL, whole or their class; numbers of MySQL and MariaDB; SQLite's primary codes, negated.
REFUSALS: dict[str | int, str] = {
    "28": LOGIN,
    "3D": NAME,
    "3F": TABLE,
    "42501": RIGHTS,
    "42P01": TABLE,
    "42703": TABLE,
    "25006": PRIMARY,
    1044: NAME,
    1045: LOGIN,
    1698: LOGIN,
    1049: NAME,
    1142: RIGHTS,
    1143: RIGHTS,
    1146: TABLE,
    1054: TABLE,
    1290: PRIMARY,
    1836: PRIMARY,
    -1: TABLE,
    -3: RIGHTS,
    -8: RIGHTS,
    -14: NAME,
    -26: NAME,
}
# Where no connection was made, libpq tells no code.
SAID = (
    (
        re.compile(r"authentication failed|no password supplied|role .* does not exist|pg_hba\.conf|permitted to log"),
        LOGIN,
    ),
    (re.compile(r"database .* does not exist|no such database|permission denied for database"), NAME),
)


def refusal_in(error: BaseException) -> str | None:
    """What to do, where an error of a driver, of SQLAlchemy or of Django means that a person must mend it."""
    driver = getattr(error, "orig", None) or error.__cause__ or error
    if isinstance(driver, TypeError | ValueError | AttributeError):  # before any database was asked
        return OPTIONS
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None) or ""
    number = driver.args[0] if driver.args and isinstance(driver.args[0], int) else 0
    sqlite = -(getattr(driver, "sqlite_errorcode", 0) & 0xFF)
    by_code = next((REFUSALS[code] for code in (state, state[:2], number, sqlite) if code in REFUSALS), None)
    if type(driver).__name__ == "ProgrammingError" and not (state or number or sqlite):  # the driver's own word
        return OPTIONS
    return by_code or next((advice for pattern, advice in SAID if pattern.search(str(driver))), None)


class DatabaseState(IntEnum):
    """As the metrics show it."""

    ANSWERS = 0
    AWAY = 1
    REFUSES = 2


class DatabaseHealth:
    """What a relay knows of its database, and says of it."""

    def __init__(
        self, database: Database, rows: OutboxTable, table: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._rows = rows
        self._table = table
        self._clock = clock
        self._logged_at = 0.0
        self.state = DatabaseState.ANSWERS
        self.where = ""  # which database, where a process has several

    def check(self, where: str) -> None:
        """At the start: whether the table is there and may be changed. A database that is away is waited for.
        `where`: which database, for people."""
        try:
            with self._database.begin() as tx:
                self._rows.check_access(tx)
        except Exception as error:
            advice = self._advice(error)
            if advice is None and contention_in(error) is None and answers(self._database):
                advice = TABLE
            if advice is not None:
                raise OutboxDatabaseError(f"the database {where} said no: {said_by(error)}; {advice}") from error
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Tell of it once, and then once a minute."""
        advice = self._advice(error)
        now, state = self._clock(), DatabaseState.AWAY if advice is None else DatabaseState.REFUSES
        if state is self.state and now < self._logged_at + REPEAT_S:
            return
        self.state, self._logged_at = state, now
        named = self._named()
        if advice is None:
            log.warning("%s could not be asked for rows, and is asked again: %s", named, said_by(error))
        else:
            log.error("%s refuses this relay, and its rows wait: %s; %s", named, said_by(error), advice)

    def answered(self) -> None:
        if self.state is not DatabaseState.ANSWERS:
            log.info("%s answers again; the relay goes on", self._named())
        self.state = DatabaseState.ANSWERS

    def _named(self) -> str:
        return f"the database ({self.where})" if self.where else "the database"

    def _advice(self, error: BaseException) -> str | None:
        advice = refusal_in(error)
        return None if advice is None else advice.format(table=self._table)


def answers(database: Database) -> bool:
    try:
        with database.begin() as tx:
            tx.run("SELECT 1", {})
    except Exception:  # noqa: BLE001 - a driver's, whatever it is
        return False
    return True
