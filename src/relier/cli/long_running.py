"""Shared by commands that run until they are stopped: options for the store and for logging."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from relier.cli.session import option_value, settings_of
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


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse nan and infinity, which click's ranges accept."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, param)
    return value


def settings_for(ctx: click.Context) -> Settings:
    """Return the settings. A bad URL is reported here, before any user code is imported."""
    settings = settings_of(option_value(ctx, "url"), option_value(ctx, "namespace"))
    target_of(settings)
    level = option_value(ctx, "log_level")
    return settings if level is None else settings.model_copy(update={"log_level": level})


def start_logging_for(ctx: click.Context) -> None:
    """Log to stderr, as the options and the settings say, unless a module of the application has configured logging."""
    settings = settings_of(None, None)
    start_logging(option_value(ctx, "log_level") or settings.log_level, settings.log_format)
