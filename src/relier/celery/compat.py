"""Collect every private attribute of Celery, kombu and billiard that Relier uses, each with its reason.

Check a new release of Celery here first. No other module of this package uses a private attribute of theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery import current_app
from celery._state import _task_stack
from celery.canvas import _chain, _chord, group
from kombu import Producer

CanvasChain, CanvasChord = _chain, _chord  # the classes behind the functions `chain` and `chord`
task_stack = _task_stack  # the tasks that run here, innermost last: what `current_task` reads

_serializer = Producer(None)


# --- the app ---------------------------------------------------------------------------------------------------------


def running_app() -> Any:
    """Return the current app itself, not the proxy, as Celery's own pool function does."""
    return current_app._get_current_object()


def known_task(app: Any, name: str) -> Any:
    """Return the app's task, or None. `app.tasks` would finalize the app, which must not happen at a push."""
    return app._tasks.get(name)


def wrap_backends(app: Any, wrap: Callable[[Any], Any]) -> None:
    """Pass every result backend that the app makes through `wrap`. `_get_backend` is the one place that makes them."""
    make = app._get_backend
    app._get_backend = lambda: wrap(make())
    app._backend_cache = None  # a backend that was made before: the next use makes another
    vars(app._local).pop("backend", None)  # the same, for a backend of one thread


def wrap_original_run(task: Any, wrap: Callable[[Any], Any]) -> None:
    """Wrap the body that `autoretry_for` calls, whose exceptions it catches."""
    if hasattr(task, "_orig_run"):
        task._orig_run = wrap(task._orig_run)


# --- sending ---------------------------------------------------------------------------------------------------------


def serialize(body: Any, serializer: Any, compression: Any, headers: dict[str, Any]) -> tuple[Any, str, str]:
    """Return body, content type and encoding, as the first step of a producer's `publish` computes them."""
    return _serializer._prepare(body, serializer, None, None, compression, headers)


def connects_at_start(scheduler: Any) -> bool:
    """Return whether this scheduler of beat connects to the broker before its first task is due."""
    return hasattr(scheduler, "_ensure_connected")


def beat_producer(scheduler: Any) -> Any:
    """Return a producer on beat's own connection to the broker. Connect first if necessary."""
    return scheduler.Producer(scheduler._ensure_connected(), auto_declare=False)


# --- canvas ----------------------------------------------------------------------------------------------------------


def save_result_tree(backend: Any, header: Any) -> None:
    """Save the result tree of a chord's header for as long as plain Celery does.

    On Redis, Celery 5.7 and later use `result_chord_expires` for that.
    """
    if hasattr(backend, "_set_chord_key"):
        backend._set_chord_key(backend.get_key_for_group(header.id), backend.encode({"result": header.as_tuple()}))
    else:
        header.save(backend=backend)


def count_parts(tasks: Any) -> int:
    """Return how many parts of a chord these tasks represent, as Celery counts them."""
    return int(_chord._descend(group(tasks)))


# --- the worker ------------------------------------------------------------------------------------------------------


def wait_for_rate_limit(consumer: Any, request: Any, bucket: Any) -> None:
    """Let the request wait for its rate limit, as Celery's own strategy does."""
    consumer._limit_task(request, bucket, 1)


def amqp_socket(connection: Any) -> Any:
    """Return the open socket of an AMQP connection, or None. The public property would reconnect."""
    return getattr(getattr(connection._connection, "_transport", None), "sock", None)


def open_channels(connection: Any) -> list[Any]:
    """Return the open channels of a transport that kombu emulates. The public property would create a transport."""
    return list(getattr(connection._transport, "channels", None) or ())


def open_sockets(channel: Any) -> list[Any]:
    """Return the sockets that a Redis channel already has open, without opening any."""
    made = vars(channel)
    clients = [made[name] for name in ("client", "subclient") if name in made]
    pools = [made.get("_pool"), made.get("_async_pool"), *(client.connection_pool for client in clients)]
    connections = [
        each
        for pool in filter(None, pools)
        for name in ("_in_use_connections", "_available_connections")
        for each in list(getattr(pool, name, ()))
    ]
    return [sock for each in connections if (sock := getattr(each, "_sock", None)) is not None]


# --- the pool --------------------------------------------------------------------------------------------------------


def is_fed_by_event_loop(pool: Any) -> bool:
    """Return whether the pool has processes that Celery's event loop feeds."""
    return hasattr(getattr(pool, "_pool", None), "outbound_buffer")


def pool_pids(pool: Any) -> set[int]:
    """Return the process ids that the pool knows."""
    return {process.pid for process in getattr(getattr(pool, "_pool", None), "_pool", ())}


def confirm_before_flush(pool: Any, make_turn: Callable[[], Callable[[], None]], seconds: float) -> None:
    """Make `pool.flush` wait until every process has confirmed whether it started the task it was given.

    Celery forgets a task that no process has confirmed, though a process may have started it. Such a task would run on
    unobserved, and shutdown would wait for it. Celery 5.4 and 5.5 also forget running tasks and busy processes; with
    this, they keep them. `make_turn` returns a function that runs one turn of Celery's event loop.
    """
    flush = pool.flush

    def confirm_and_flush() -> None:
        processes, turn = pool._pool, make_turn()
        processes.outbound_buffer.clear()  # no process was given these
        jobs, until = processes._cache, time.monotonic() + seconds
        while any(_is_unconfirmed(job) for job in jobs.values()) and time.monotonic() < until:
            turn()
        runs = {number: job for number, job in jobs.items() if job._write_to and job._accepted}
        busy = processes._busy_workers & {job._write_to.inqW_fd for job in runs.values()}
        flush()
        jobs.update((number, job) for number, job in runs.items() if not job.ready())
        processes._busy_workers |= busy

    pool.flush = confirm_and_flush


def _is_unconfirmed(job: Any) -> bool:
    """Return whether a living process was given the job and has not confirmed that it started."""
    return job._write_to is not None and not job._accepted and job._write_to._is_alive()
