"""The tables. They equal those of `outbox_table` and `inbox_table`, so that every relay and command can use them.

LedgerTask and DeadLetter have no tables. They give the ledger's tasks and dead letters a place in the admin, with
permissions.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from relier.errors import ConfigurationError
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.table.statements import NOW_MS


class NowMs(models.Func):
    """The database's own time, in ms."""

    output_field = models.BigIntegerField()

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper, **_: Any) -> tuple[str, list[Any]]:  # noqa: ARG002
        now = NOW_MS.get(connection.vendor)
        if now is None:
            raise ConfigurationError(
                f"database {connection.alias!r} is {connection.display_name}, which the outbox does not support; use "
                f"PostgreSQL, MySQL, MariaDB or SQLite"
            )
        return now.replace("%", "%%"), []


class OutboxRow(models.Model):
    """A task that a relay will send. Times are the database's, in ms."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.CharField(max_length=64)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    order_key = models.CharField(max_length=255, db_default="")
    body = models.BinaryField()
    created_at = models.BigIntegerField()
    due_at = models.BigIntegerField()
    leased_by = models.CharField(max_length=64, db_default="")
    leased_at = models.BigIntegerField(db_default=0)
    claims = models.IntegerField(db_default=0)
    retries = models.IntegerField(db_default=0)
    dead = models.SmallIntegerField(db_default=0)
    died_at = models.BigIntegerField(db_default=0)
    error = models.TextField(null=True)

    class Meta:
        app_label = "relier"
        db_table = DEFAULT_TABLE
        verbose_name = "outbox row"
        indexes: ClassVar = [
            models.Index(fields=["dead", "due_at", "id"], name=f"ix_{DEFAULT_TABLE}_due"),
            models.Index(fields=["order_key", "id"], name=f"ix_{DEFAULT_TABLE}_order"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.task_id}"


class InboxMark(models.Model):
    """The mark that a task ran and that its effects in this database are committed."""

    pk = models.CompositePrimaryKey("task_id", "revision")
    task_id = models.CharField(max_length=64)
    revision = models.IntegerField()
    result = models.BinaryField(null=True)
    created_at = models.BigIntegerField()

    class Meta:
        app_label = "relier"
        db_table = "relier_inbox"
        verbose_name = "inbox mark"

    def __str__(self) -> str:
        return f"{self.task_id} {self.revision}"


class NoRows(models.Manager):
    """Finds nothing, so that `dumpdata` and similar commands do not query a table that does not exist."""

    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().none()


class LedgerTask(models.Model):
    """A task in the ledger."""

    id = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=255)

    objects = NoRows()

    class Meta:
        app_label = "relier"
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view",)
        verbose_name = "task"

    def __str__(self) -> str:
        return f"{self.name} {self.id}"


class DeadLetter(models.Model):
    """A dead task in the ledger. To replay it, a user needs the change permission; to discard it, the delete
    permission."""

    id = models.CharField(max_length=64, primary_key=True)
    name = models.CharField(max_length=255)

    objects = NoRows()

    class Meta:
        app_label = "relier"
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change", "delete")
        verbose_name = "dead letter"

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
