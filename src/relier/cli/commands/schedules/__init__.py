"""rl schedules: list, preview, add, pause, resume, run and remove schedules."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.commands.schedules.changing import add, pause, remove, resume, run
from relier.cli.commands.schedules.reading import history, list_command, next_command


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "delete": "remove", "rm": "remove"})
@store_options
def schedules(**_: Any) -> None:
    """List, preview, add, pause, resume, run and remove schedules.

    Without a command, lists schedules.
    """
    with contextlib.suppress(ImportError):
        import relier.celery.beat  # noqa: F401 - registers how the times of its entries are computed


for command in (list_command, next_command, history, add, pause, resume, run, remove):
    schedules.add_command(command)
