"""The Django project and Celery app of outbox_django.py."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import django
from django.conf import settings

where = urlsplit(os.environ["BENCH_DATABASE"])
settings.configure(
    INSTALLED_APPS=["django_celery_outbox"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": where.path.lstrip("/"),
            "USER": where.username,
            "HOST": where.hostname,
            "PORT": where.port,
        }
    },
    CELERY_OUTBOX_APP="bench.peers.outbox_django_app.app",
    USE_TZ=True,
)
django.setup()

from django_celery_outbox import OutboxCelery  # noqa: E402

app = OutboxCelery("bench", broker=os.environ["BENCH_BROKER"], task_ignore_result=True)


@app.task(name="bench.receipt")
def receipt(order: int) -> None:
    """Never run: only its message counts."""
