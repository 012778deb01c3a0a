"""rl dashboard: serve the dashboard of a namespace."""

from __future__ import annotations

import ipaddress

import click

from relier.cli.long_running import long_running_options, settings_for, start_logging_for
from relier.cli.session import CommandFailure, Exit
from relier.settings import Settings
from relier.submit.client import place_of
from relier.version import how_to_install

DEFAULT_PORT = 8642


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port; 0: any.")
@long_running_options
@click.pass_context
def dashboard(ctx: click.Context, /, host: str, port: int, **_: str) -> None:
    """Serve pages that show queues, tasks, dead letters, schedules, batches, nodes and limits, and change them.

    Everybody on this machine may use it. To listen on another address than loopback, set RELIER_DASHBOARD_TOKEN for
    operators and, if you like, RELIER_DASHBOARD_VIEWER_TOKEN for people who may only read.
    """
    settings = settings_for(ctx, of_shard=True)
    check_exposure(settings, host)
    try:
        import uvicorn

        from relier.dashboard.application import local_app
    except ImportError as error:
        raise CommandFailure(f"{error}; to install it, {how_to_install('dashboard')}", Exit.USAGE) from error
    application = local_app(settings)
    start_logging_for(ctx)
    click.echo(f"Dashboard of {place_of(settings)}: http://{_written(host)}:{port}/", err=True)
    uvicorn.run(
        application,
        host=host,
        port=port,
        log_level=settings.log_level,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


def check_exposure(settings: Settings, host: str) -> None:
    """Refuse to listen beyond loopback without a token."""
    if not settings.dashboard_token and not settings.dashboard_viewer_token and not is_loopback(host):
        raise CommandFailure(
            f"the dashboard does not listen on {host} without a token: everybody who can reach that address could "
            f"change your tasks; set RELIER_DASHBOARD_TOKEN, or listen on 127.0.0.1",
            Exit.USAGE,
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
