from __future__ import annotations

from typing import Any

from django.db import migrations, models


class Migration(migrations.Migration):
    """Give the ledger's tasks and dead letters a place in the admin. These models have no tables."""

    dependencies: list[Any] = [("relier", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name=name,
            fields=[
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
            ],
            options={
                "verbose_name": verbose,
                "managed": False,
                "base_manager_name": "objects",
                "default_permissions": permissions,
            },
        )
        for name, verbose, permissions in (
            ("LedgerTask", "task", ("view",)),
            ("DeadLetter", "dead letter", ("view", "change", "delete")),
        )
    ]
