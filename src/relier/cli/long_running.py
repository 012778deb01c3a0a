"""Shared by commands that run until they are stopped: options for the store and for logging."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from relier.cli.session import option_value, settings_of, shard_number
from relier.logs.setup import start_logging
from relier.settings import Settings
from relier.store.connect.address import target_of

LEVELS = ("debug", "info", "warning", "error")


def long_running_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --url, --namespace and --log-level."""
    function = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        help="Log threshold. Overrides RELIER_LOG_LEVEL.  [default: info]",
    )(function)
    function = click.option("--namespace", metavar="NAME", help="Namespace to use. Overrides RELIER_NAMESPACE.")(
        function
    )
    shown = "URL of the Redis or Valkey server. Overrides RELIER_REDIS_URL."
    return click.option("--url", metavar="URL", help=shown)(function)


def metrics_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --metrics-port and --metrics-host."""
    shown = "Address of the port; 0.0.0.0 for every network. Overrides RELIER_METRICS_HOST.  [default: 127.0.0.1]"
    function = click.option("--metrics-host", metavar="ADDRESS", help=shown)(function)
    return click.option(
        "--metrics-port",
        type=click.IntRange(1, 65_535),
        metavar="PORT",
        help="Serve /livez, /readyz, /startupz and /metrics on this port. Overrides RELIER_METRICS_PORT.",
    )(function)


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse nan and infinity, which click's ranges accept."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, param)
    return value


def settings_for(ctx: click.Context, *, of_shard: bool = False) -> Settings:
    """Return the settings. A bad URL is reported here, before any user code is imported.

    `of_shard`: the command serves one namespace, which --shard may choose.
    """
    settings = settings_of(option_value(ctx, "url"), option_value(ctx, "namespace"))
    if (shard := option_value(ctx, "shard")) is not None:
        if not of_shard:
            raise click.UsageError(
                f"{ctx.command_path} serves all shards; leave --shard out, or name the shards of a worker: rl worker "
                f"--shards {shard}"
            )
        settings = settings.of_shard(shard_number(settings, shard))
    for shard in range(settings.shards):
        target_of(settings.of_shard(shard))
    names = ("log_level", "metrics_port", "metrics_host")
    given = {name: value for name in names if (value := option_value(ctx, name)) is not None}
    return settings.replace(**given) if given else settings


def start_logging_for(ctx: click.Context) -> None:
    """Log to stderr, as the options and the settings say, unless a module of the application has configured logging."""
    settings = settings_of(None, None)
    start_logging(option_value(ctx, "log_level") or settings.log_level, settings.log_format)
