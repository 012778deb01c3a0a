"""The checks of `manage.py check`.

relier.E001   settings.RELIER or RELIER_… that are invalid relier.W001   the outbox is not strict
relier.E002   a database that the outbox does not support  relier.W002   its tables do not exist yet
relier.E003   tables that do not match                     relier.E004   a server that is too old
relier.E005   options of a backend in TASKS (tasks/)       relier.E006   a backend without the app

E003, E004 and W002 query the database: `manage.py check --database default`. `migrate` runs E003 and E004 too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

from relier.errors import ConfigurationError
from relier.outbox.table.statements import NOW_MS
from relier.redact import check_hook
from relier.settings import get_settings

LABEL = "relier"


def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:  # noqa: ARG001 - Django's signature
    from relier.django.outbox import STRICT, is_strict  # imports the models, which are loaded after apps.py

    found: list[CheckMessage] = []
    try:
        check_hook(get_settings())
    except ConfigurationError as error:
        found.append(Error(str(error), id="relier.E001"))
    if not is_strict():
        found.append(
            checks.Warning(
                f"{STRICT} is off: a task that is pushed outside a transaction is sent even if the rest fails",
                hint="Push inside transaction.atomic(), and remove the setting.",
                id="relier.W001",
            )
        )
    return found


def check_engines(app_configs: Any, **_: Any) -> list[CheckMessage]:  # noqa: ARG001
    return [
        Error(
            f"the outbox cannot be in database {alias!r}: it supports PostgreSQL, MySQL, MariaDB and SQLite, not "
            f"{connections[alias].display_name}",
            hint="Exclude the database: a router whose allow_migrate returns False for the app 'relier'.",
            id="relier.E002",
        )
        for alias in connections
        if connections[alias].vendor not in NOW_MS and may_hold(alias)
    ]


def check_tables(
    app_configs: Any,  # noqa: ARG001
    databases: Sequence[str] | None = None,
    **_: Any,
) -> list[CheckMessage]:
    aliases = [one for one in databases or () if connections[one].vendor in NOW_MS and may_hold(one)]
    return [message for alias in aliases for message in tables_of(alias)]


def may_hold(alias: str) -> bool:
    """Return whether the project's routers allow an outbox in this database."""
    return any(router.allow_migrate_model(alias, model) for model in models_with_tables())


def models_with_tables() -> list[type[models.Model]]:
    return [model for model in apps.get_app_config(LABEL).get_models() if model._meta.managed]


def tables_of(alias: str) -> list[CheckMessage]:
    """Check the tables in one database."""
    connection = connections[alias]
    found: list[CheckMessage] = [
        Error(f"database {alias!r}: {one}", hint="Upgrade the server.", id="relier.E004")
        for one in _too_old(connection)
    ]
    wrong = [
        f"{model._meta.db_table}: {one}"
        for model in models_with_tables()
        if router.allow_migrate_model(alias, model)
        for one in _mismatches(connection, model)
    ]
    if wrong:
        kind, number, hint = Error, "relier.E003", "The migrations have run, so the tables were changed afterwards."
        if _is_behind(connection):  # not an error, or `migrate` would refuse to create what is missing
            if sys.argv[1:2] == ["migrate"]:  # which is about to do what the warning would ask for
                return found
            kind, number, hint = checks.Warning, "relier.W002", f"Run `python manage.py migrate --database {alias}`."
        found.append(kind(f"database {alias!r}: {'; '.join(wrong)}", hint=hint, id=number))
    return found


def _too_old(connection: BaseDatabaseWrapper) -> Iterator[str]:
    if connection.vendor == "sqlite":
        if not connection.features.can_return_rows_from_bulk_insert:
            yield "a relay needs SQLite 3.35 or newer (RETURNING)"
    elif not connection.features.has_select_for_update_skip_locked:
        yield "a relay needs FOR UPDATE SKIP LOCKED: MySQL 8.0.1, MariaDB 10.6, or newer"


def _is_behind(connection: BaseDatabaseWrapper) -> bool:
    loader = MigrationLoader(connection)
    return any(leaf not in loader.applied_migrations for leaf in loader.graph.leaf_nodes(LABEL))


def _mismatches(connection: BaseDatabaseWrapper, model: type[models.Model]) -> Iterator[str]:
    meta, look = model._meta, connection.introspection
    with connection.cursor() as cursor:
        if meta.db_table not in look.table_names(cursor):
            yield "it does not exist"
            return
        there = {column.name: column for column in look.get_table_description(cursor, meta.db_table)}
        constraints = look.get_constraints(cursor, meta.db_table).values()
    ours = {field.column: field for field in meta.local_concrete_fields}
    for name, field in ours.items():
        if name not in there:
            yield f"column {name} ({field.db_type(connection)}) is missing"
    for name, column in there.items():
        if name not in ours and not column.null_ok and column.default is None:
            yield f"column {name} is not one of ours, and must not be NULL: no row can be written"
    yield from _wrong_engine(connection, meta.db_table)
    indexed = {tuple(one["columns"]) for one in constraints if one["index"] or one["unique"]}
    for index in meta.indexes:
        columns = tuple(index.fields)
        if columns not in indexed:
            yield f"the index on ({', '.join(columns)}) is missing"


def _wrong_engine(connection: BaseDatabaseWrapper, table: str) -> Iterator[str]:
    if connection.vendor != "mysql":
        return
    with connection.cursor() as cursor:
        of_table = "table_schema = database() AND table_name = %s"
        cursor.execute(f"SELECT engine FROM information_schema.tables WHERE {of_table}", [table])  # noqa: S608
        engine = cursor.fetchall()[0][0]
    if engine != "InnoDB":
        yield f"its engine is {engine}, which keeps rows that are rolled back, and should be InnoDB"
