"""Names of tables: a name, or schema.name, exactly as the table was made, and quoted wherever a statement has it."""

from __future__ import annotations

import re

from relier.errors import ConfigurationError

LONGEST = 52  # PostgreSQL's names have 63 characters, and that of the longest index is eleven longer than its table's
PART = r"[A-Za-z0-9_$](?:[A-Za-z0-9_$ -]*[A-Za-z0-9_$])?"
NAME = re.compile(rf"(?:({PART})\.)?({PART})")


def table_parts(table: str) -> tuple[str | None, str]:
    """The schema, if there is one, and the name. Raises where no table can be called that."""
    found = NAME.fullmatch(table)
    if found is None or len(found[2]) > LONGEST:
        raise ConfigurationError(
            f"a table's name is `name` or `schema.name`, of letters a to z, digits, _, $, - and spaces inside, and at "
            f"most {LONGEST} characters long for the sake of its indexes, not {table!r:.80}; rename the table"
        )
    return found[1], found[2]


def quoted(dialect: str, table: str) -> str:
    """The name as a statement has it: reserved words, spaces and upper case mean what they say."""
    mark = "`" if dialect == "mysql" else '"'
    return ".".join(f"{mark}{part}{mark}" for part in table_parts(table) if part)
