"""rl limits: show the limits of running tasks, and change them at run time."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.commands.limits.changing import clear_command, set_command
from relier.cli.commands.limits.listing import list_command


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "status": "list", "show": "list"})
@store_options
def limits(**_: Any) -> None:
    """Show how many tasks may run at once and how often they may start, and change these limits at run time.

    Without a command, lists the limits.
    """


for _command in (list_command, set_command, clear_command):
    limits.add_command(_command)
