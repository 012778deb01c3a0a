"""An application that logs. LOGGING_APP says how it configures logging on import: not at all, or with the stdlib."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from contextvars import copy_context

from relier import Retries, TaskContext, TaskEvent, rl_task
from tests.support.jobs.common import gate_opens, note

log = logging.getLogger("shop.mail")

if os.environ.get("LOGGING_APP") == "basic":
    logging.basicConfig(level=logging.INFO, format="MINE %(levelname)s %(message)s", stream=sys.stderr)


def redact(_: str, value: object) -> object:
    return value.replace("4711", "####") if isinstance(value, str) else value


@rl_task
async def send(ctx: TaskContext) -> None:
    log.info("sending %s", "mail")
    try:
        int("no\nnumber")
    except ValueError:
        log.exception("not sent", extra={"address": "ann@example.com"})
    await asyncio.to_thread(log.info, "from a thread of asyncio's")
    thread = threading.Thread(target=copy_context().run, args=(log.info, "from a thread with the context"))
    thread.start()
    thread.join()
    note("sent", ctx)


@rl_task(isolate=True)
def send_alone(ctx: TaskContext) -> None:
    log.info("sending alone")
    log.debug("in detail")
    note("sent", ctx)


def shout(event: TaskEvent) -> None:
    print(f"HOOK {event.kind} {event.error}", flush=True)


@rl_task(retries=Retries(attempts=1, backoff=0), on_retry=shout, on_dead=shout)
async def charge() -> None:
    raise ValueError("card 4711 was refused")


@rl_task(on_revived=shout)
async def hold(gate: str, ctx: TaskContext) -> None:
    note("begin", ctx)
    await gate_opens(gate)
