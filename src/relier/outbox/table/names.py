"""Table names: `name` or `schema.name`, exactly as the table was created, and quoted in every statement."""

from __future__ import annotations

import re

from relier.errors import ConfigurationError

LONGEST = 52  # PostgreSQL allows 63 characters, and the longest index name is eleven longer than its table's name
PART = r"[A-Za-z0-9_$](?:[A-Za-z0-9_$ -]*[A-Za-z0-9_$])?"
NAME = re.compile(rf"(?:({PART})\.)?({PART})")


def table_parts(table: str) -> tuple[str | None, str]:
    """Split a table name into its schema, if it has one, and its name. Raise if no table can have that name."""
    found = NAME.fullmatch(table)
    if found is None or len(found[2]) > LONGEST:
        raise ConfigurationError(
            f"{table!r:.80} is not a table name that the outbox accepts: a table's name is `name` or `schema.name`, of "
            f"letters a to z, digits, _, $, - and inner spaces, and at most {LONGEST} characters, because its indexes "
            f"are named after it; rename the table"
        )
    return found[1], found[2]


def quoted(dialect: str, table: str) -> str:
    """Quote a table name for a statement, so that reserved words, spaces and upper case are taken literally."""
    mark = "`" if dialect == "mysql" else '"'
    return ".".join(f"{mark}{part}{mark}" for part in table_parts(table) if part)
