"""rl health: is the process on this host live and ready? Imports no code of the application, and little of ours."""

from __future__ import annotations

import json
from typing import Any

import click

from relier.cli.command_groups import store_options
from relier.monitoring.asking import fetch_health
from relier.monitoring.health import Health

PROBE_OF = {"live": "/livez", "ready": "/readyz", "startup": "/startupz"}
EVERY_NETWORK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - asked on loopback


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65_535), metavar="PORT", help="Metrics port.  [default: RELIER_METRICS_PORT]"
)
@click.option("--host", metavar="ADDRESS", help="Address of the port.  [default: RELIER_METRICS_HOST]")
@click.option(
    "--probe", type=click.Choice(list(PROBE_OF)), default="ready", show_default=True, help="The question to ask."
)
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="Seconds.")
@store_options
@click.pass_context
def health(ctx: click.Context, /, probe: str, timeout: float, **given: Any) -> None:
    """Check the health of a process on this host, through its metrics port.

    Without a port, reads from the store which processes of this host are registered, and whether they send heartbeats.
    That succeeds if one of them is alive and, unless --probe is `live`, takes work.

    Exits with 0 if the probe succeeds, with 1 if it fails or nothing answers, and with 3 if the store cannot be
    reached.
    """
    from relier.settings import get_settings

    settings = get_settings()
    port = given["port"] or settings.metrics_port
    if port:
        host = given["host"] or settings.metrics_host
        found = ask_port(EVERY_NETWORK.get(host, host), port, timeout)
    else:
        from relier.cli.commands.monitoring.registry import ask_registry

        found = ask_registry(ctx)
    reasons = (found,) if isinstance(found, str) else found.reasons(PROBE_OF[probe])
    role = "" if isinstance(found, str) else found.role
    if given["as_json"] or ctx.meta.get("relier.as_json"):
        click.echo(json.dumps({"probe": probe, "ok": not reasons, "role": role, "reasons": [*reasons]}))
    else:
        click.echo(f"{'not ' if reasons else ''}{probe}: {'; '.join(reasons) or role}")
    ctx.exit(1 if reasons else 0)


def ask_port(host: str, port: int, seconds: float) -> Health | str:
    """Return the health of the process that serves a port, or why there is no answer."""
    try:
        return fetch_health(host, port, seconds)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return f"no process answers at {host}:{port}: {why}"
