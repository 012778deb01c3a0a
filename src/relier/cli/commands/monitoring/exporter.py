"""rl exporter: the metrics of a whole namespace, read from its ledger."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import closing
from typing import Any

import click

from relier.cli.commands.monitoring.ledger_metrics import LedgerCollector
from relier.cli.long_running import long_running_options, metrics_options, settings_for, start_logging_for
from relier.cli.session import session_of
from relier.monitoring.health import Health
from relier.monitoring.meter import Meter
from relier.monitoring.monitor import MonitoringAddress, start_monitor
from relier.monitoring.node_metrics import count_process
from relier.stop_signals import stop_signals

log = logging.getLogger("relier.monitoring")
ROLE = "exporter"


@click.command()
@metrics_options
@long_running_options
@click.pass_context
def exporter(ctx: click.Context, /, **_: Any) -> None:
    """Serve metrics of the whole namespace for Prometheus: queues, states, dead letters, nodes, limits, schedules.

    Each scrape reads the ledger. One exporter per namespace is enough. It changes nothing, and needs no code of the
    application.
    """
    settings = settings_for(ctx, of_shard=True)
    if not settings.metrics_port:
        raise click.UsageError("an exporter needs a port; add --metrics-port, or set RELIER_METRICS_PORT")
    start_logging_for(ctx)
    stopped = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stopped.set())
    with session_of(ctx) as session:
        collector, meter = LedgerCollector(session), Meter()

        def health() -> Health:
            return Health(ROLE, True, (), (f"the ledger cannot be read: {collector.error}",) if collector.error else ())

        meter.collectors.append(collector)
        count_process(meter, health, ROLE)
        address = MonitoringAddress(settings.metrics_host, settings.metrics_port)
        with closing(start_monitor(address, health, meter)):
            log.info("exporter started: port=%d %s", settings.metrics_port, session.where)
            stopped.wait()
    log.info("exporter stopped")
