"""What the commands that stay share: the options for store and log, and the settings they lead to."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from typing import Any

import click

from relier.cli.session import said, settings_of
from relier.settings import Settings
from relier.store.connect.address import target_of

LEVELS = ("debug", "info", "warning", "error")


def stays(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that stays: the store, and how much it says."""
    function = click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)(function)
    function = click.option("--namespace", metavar="NAME", help="The namespace, instead of RELIER_NAMESPACE.")(function)
    return click.option("--url", metavar="URL", help="The store, instead of RELIER_REDIS_URL.")(function)


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """click's ranges let nan pass, which is neither below nor above anything."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number", ctx, param)
    return value


def start_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr, force=True
    )


def settings_for(ctx: click.Context) -> Settings:
    """A URL that cannot be used is told now, before any code of the user's is imported."""
    settings = settings_of(said(ctx, "url"), said(ctx, "namespace"))
    target_of(settings)
    return settings
