"""Install Relier in a Celery app: `install(app)` makes the app keep its tasks in the ledger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals
from kombu.utils.imports import symbol_by_name

from relier.celery.adoption import Adoption, find_adoption, remember_adoption
from relier.celery.canvas.backend import backend_class
from relier.celery.compat import connects_at_start, wrap_backends
from relier.celery.internal import register_internal
from relier.celery.outbox import TransactionalOutbox
from relier.celery.pool.asyncio_pool import register_asyncio_pool
from relier.celery.sending.control import control_class
from relier.celery.sending.producers import acquire_producers_lazily, connect_lazily
from relier.celery.sending.publish import amqp_class, broker_scheme
from relier.celery.working.bootsteps import ConsumerStep, LedgerStep
from relier.celery.working.events import events_class
from relier.errors import ConfigurationError
from relier.settings import Settings, get_settings
from relier.settings.shards import refuse_shards
from relier.submit.client import has_chosen_store, is_store_chosen, use_client

log = logging.getLogger("relier.celery")

# What `install` sets unless the app has set it. Nothing else of the app's configuration changes.
BROKER_OPTIONS = {
    # With kombu's defaults, a frozen broker (a Sentinel's dead master) leaves the worker's main thread in a read
    # forever. With these options the worker reconnects by itself.
    "socket_timeout": 5.0,
    "socket_connect_timeout": 3.0,
    "socket_keepalive": True,
    "health_check_interval": 5,
}


def install(
    app: Any,
    *,
    adopt: bool | Sequence[str] = (),
    settings: Settings | None = None,
    outbox: TransactionalOutbox | None = None,
) -> Any:
    """Make `app` keep tasks in the ledger, and return the app. Call this once, where the app is created.

    The ledger keeps the `@rl_task`s of the app. `adopt`: it also keeps the app's Celery tasks, either all of them
    (True) or those whose names match (`["proj.billing.*"]`).

    `outbox`: adopted tasks that are sent inside a database transaction become part of that transaction. A relay sends
    them after the commit.
    """
    if not isinstance(app, Celery):
        raise ConfigurationError(f"install takes the Celery app, an instance of celery.Celery, not {app!r:.60}")
    if find_adoption(app) is not None:
        return app
    refuse_shards((settings or get_settings.__wrapped__()).shards, "the Celery engine")
    _check_store(settings)
    adoption = Adoption(app, adopt, settings, outbox)
    remember_adoption(adoption)
    if settings is not None:
        use_client(adoption.client)
    _replace_senders(app, adoption)
    _replace_backends(app)
    register_asyncio_pool()
    app.steps["worker"].add(LedgerStep)
    app.steps["consumer"].add(ConsumerStep)
    if app.configured:
        _configure(app)
    else:
        app.on_after_configure.connect(_configure_later, weak=False)
    return app


def _check_store(settings: Settings | None) -> None:
    """Refuse the default store, an embedded one: Celery's producers and workers rarely share a folder."""
    if has_chosen_store() if settings is None else is_store_chosen(settings):
        return
    raise ConfigurationError(
        "install was refused: RELIER_REDIS_URL is not set, so this process would start its own embedded store, "
        "in which no worker finds its tasks; set RELIER_REDIS_URL to one store for producers and workers, or pass "
        "settings=Settings(redis_url=…); for a store in the project's folder, write RELIER_REDIS_URL=embedded://"
    )


def _replace_senders(app: Any, adoption: Adoption) -> None:
    app.amqp_cls = amqp_class(symbol_by_name(app.amqp_cls), adoption)
    app.control_cls = control_class(symbol_by_name(app.control_cls), adoption)
    app.events_cls = events_class(symbol_by_name(app.events_cls))
    acquire_producers_lazily(app)
    for cached in ("amqp", "control", "events"):  # the next use makes an instance of the new class
        app.__dict__.pop(cached, None)


def _replace_backends(app: Any) -> None:
    def join_in_ledger(backend: Any) -> Any:
        vars(backend).pop("apply_chord", None)  # backends with counters set it on the instance
        backend.__class__ = backend_class(type(backend))
        return backend

    wrap_backends(app, join_in_ledger)
    register_internal(app)


def _configure_later(sender: Any = None, **_: Any) -> None:
    _configure(sender)


def _configure(app: Any) -> None:
    if broker_scheme(app) in ("redis", "rediss", "sentinel"):
        options = app.conf.broker_transport_options
        for name, value in BROKER_OPTIONS.items():
            options.setdefault(name, value)


@signals.beat_init.connect(weak=False)
@signals.beat_embedded_init.connect(weak=False)
def _start_beat_without_broker(sender: Any, **_: Any) -> None:
    if find_adoption(sender.app) is not None and connects_at_start(sender.scheduler):
        connect_lazily(sender.scheduler)
