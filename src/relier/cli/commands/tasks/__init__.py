"""rl tasks: list, inspect, watch, count, cancel and forget tasks."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.commands.tasks.cancel import cancel
from relier.cli.commands.tasks.forget import forget
from relier.cli.commands.tasks.inflight import inflight
from relier.cli.commands.tasks.inspect import inspect
from relier.cli.commands.tasks.listing import list_command
from relier.cli.commands.tasks.top import top


@click.group(cls=DefaultGroup, default="list", aliases={"show": "inspect", "ls": "list"})
@store_options
def tasks(**_: Any) -> None:
    """List, inspect, watch, count, cancel and forget tasks.

    Without a command, lists tasks, with the options of `rl tasks list`.
    """


for command in (list_command, inspect, inflight, top, cancel, forget):
    tasks.add_command(command)
