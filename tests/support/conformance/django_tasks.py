"""Tasks that use a Django database, in threads and on the event loop."""

from __future__ import annotations

import json
import os

import django
from asgiref.sync import sync_to_async
from celery import shared_task
from django.conf import settings

from relier import rl_task

if not settings.configured:
    settings.configure(DATABASES={"default": json.loads(os.environ["CONFORMANCE_DATABASE"])}, USE_TZ=True)
    django.setup()

from django.db import connection


def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    return int(pid)


@rl_task
def in_thread() -> int:
    return backend_pid()


@rl_task
async def on_loop() -> int:
    return await sync_to_async(backend_pid)()


@rl_task(isolate=True)
def alone() -> int:
    return backend_pid()


@shared_task(name="conformance.adopted")
def adopted() -> int:
    return backend_pid()
