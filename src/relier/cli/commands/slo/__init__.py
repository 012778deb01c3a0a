"""rl slo: how well objectives are met, and numbers per task."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.commands.slo.report import report_command
from relier.cli.commands.slo.status import status_command


@click.group(cls=DefaultGroup, default="status", aliases={"show": "status"})
@store_options
def slo(**_: Any) -> None:
    """Show how well objectives are met, and how tasks end, wait and run.

    Without a command, shows the objectives.
    """


for _command in (status_command, report_command):
    slo.add_command(_command)
