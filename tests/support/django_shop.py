"""A Django project in the process of the tests: its settings are made once, and its databases are set for each test."""

from __future__ import annotations

import sys
from typing import Any, Self

import django
import pymysql
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from sqlalchemy.engine import make_url

from relier import Client
from relier.outbox.publish.target import LedgerTarget
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.states import State

ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}
NOWHERE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}

if not settings.configured:
    pymysql.install_as_MySQLdb()
    settings.configure(
        SECRET_KEY="tests",
        ALLOWED_HOSTS=["testserver"],
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "relier.django",
        ],
        DATABASES={"default": NOWHERE, "second": NOWHERE},
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        RELIER_OUTBOX_WAKE=False,
        ROOT_URLCONF="tests.support.django_shop",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.urls import path

from relier.django.database import DjangoDatabase
from relier.django.models import OutboxRow

__all__ = ["DjangoShop", "LogEntry", "Order", "Permission", "User"]  # its models, for tests that import it first

urlpatterns = [path("admin/", admin.site.urls)]
sys.modules.setdefault("tests.support.django_shop", sys.modules[__name__])


class Order(models.Model):
    id = models.IntegerField(primary_key=True)

    class Meta:
        app_label = "shop"


class OnlyDefault:
    """A router that keeps the outbox out of other databases."""

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return db == "default" if app_label == "relier" else None


class DjangoShop:
    """Two databases with an outbox each, and one ledger."""

    def __init__(self, client: Client, **urls: str) -> None:
        self.client = client
        self._urls = urls
        self._relays: list[Relay] = []

    def __enter__(self) -> Self:
        self._before = connections.settings
        self._use({alias: entry_of(url) for alias, url in self._urls.items()})
        return self

    def __exit__(self, *_: object) -> None:
        for relay in self._relays:
            relay.close()
        self._use(self._before)

    def _use(self, databases: dict[str, dict[str, Any]]) -> None:
        connections.close_all()
        connections.settings = connections.configure_settings(dict(databases))
        for alias in databases:
            if hasattr(connections._connections, alias):
                delattr(connections._connections, alias)
        ContentType.objects.clear_cache()

    def make_tables(self) -> Self:
        for alias in self._urls:
            call_command("migrate", "relier", database=alias, verbosity=0)
            with connections[alias].schema_editor() as editor:
                editor.create_model(Order)
        return self

    def rows(self, alias: str = "default") -> list[OutboxRow]:
        return list(OutboxRow.objects.using(alias).order_by("id"))

    def ids(self, alias: str = "default") -> list[str]:
        return [row.task_id for row in self.rows(alias)]

    def orders(self, alias: str = "default") -> list[int]:
        return list(Order.objects.using(alias).order_by("id").values_list("id", flat=True))

    def relay(self, *targets: Any, alias: str = "default", **options: Any) -> Relay:
        """Return a relay that the test drives by hand. It is no member, and no bell wakes it."""
        chosen = targets or [LedgerTarget(Client(self.client.settings))]
        relay = Relay(DjangoDatabase(alias), chosen, RelayOptions(**options))
        self._relays.append(relay)
        return relay

    def state(self, task_id: str) -> State:
        return self.client.run(self.client.ledger.get(task_id)).record.state


def entry_of(url: str) -> dict[str, Any]:
    """Return a database's URL as an entry of DATABASES."""
    parts = make_url(url)
    return {
        "ENGINE": f"django.db.backends.{ENGINES[parts.get_backend_name()]}",
        "NAME": parts.database,
        "USER": parts.username or "",
        "HOST": parts.host or "",
        "PORT": parts.port or "",
    }
