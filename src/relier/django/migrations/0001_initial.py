from __future__ import annotations

from typing import Any

from django.db import migrations, models


def leave_room(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - Django's signature
    """Leave room in PostgreSQL's pages, so that a claim can rewrite a row in its page without touching an index."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE relier_outbox SET (fillfactor = 50)")


def choose_engine(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """MySQL's default may be an engine without transactions, which would keep rows that are rolled back."""
    if schema_editor.connection.vendor == "mysql":
        for table in ("relier_outbox", "relier_inbox"):
            schema_editor.execute(f"ALTER TABLE {table} ENGINE = InnoDB")


class Migration(migrations.Migration):
    initial = True

    dependencies: list[Any] = []

    operations = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("task_id", models.CharField(max_length=64)),
                ("kind", models.CharField(max_length=16)),
                ("name", models.CharField(max_length=255)),
                ("queue", models.CharField(max_length=255)),
                ("order_key", models.CharField(db_default="", max_length=255)),
                ("body", models.BinaryField()),
                ("created_at", models.BigIntegerField()),
                ("due_at", models.BigIntegerField()),
                ("leased_by", models.CharField(db_default="", max_length=64)),
                ("leased_at", models.BigIntegerField(db_default=0)),
                ("claims", models.IntegerField(db_default=0)),
                ("retries", models.IntegerField(db_default=0)),
                ("dead", models.SmallIntegerField(db_default=0)),
                ("died_at", models.BigIntegerField(db_default=0)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "verbose_name": "outbox row",
                "db_table": "relier_outbox",
                "indexes": [
                    models.Index(fields=["dead", "due_at", "id"], name="ix_relier_outbox_due"),
                    models.Index(fields=["order_key", "id"], name="ix_relier_outbox_order"),
                ],
            },
        ),
        migrations.CreateModel(
            name="InboxMark",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task_id", "revision", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task_id", models.CharField(max_length=64)),
                ("revision", models.IntegerField()),
                ("result", models.BinaryField(null=True)),
                ("created_at", models.BigIntegerField()),
            ],
            options={"verbose_name": "inbox mark", "db_table": "relier_inbox"},
        ),
        migrations.RunPython(leave_room, migrations.RunPython.noop),
        migrations.RunPython(choose_engine, migrations.RunPython.noop, atomic=False),
    ]
