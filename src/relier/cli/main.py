"""The entry point of `rl`: the table of commands.

This module imports nothing heavy; a test checks what `rl --help` loads.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

import click

from relier.cli.command_groups import CommandEntry, LazyGroup, store_options

# One line per command. An alias is another line with the same target and no help.
COMMANDS: dict[str, CommandEntry] = {
    "worker": CommandEntry("relier.cli.commands.worker:worker", "Run tasks."),
    "dev": CommandEntry("relier.cli.commands.worker:dev", "Run tasks, and restart when a source file changes."),
    "resurrector": CommandEntry(
        "relier.cli.commands.worker:resurrector", "Recover the tasks of dead workers, without running any."
    ),
    "run-resurrector": CommandEntry("relier.cli.commands.worker:resurrector"),
    "scheduler": CommandEntry(
        "relier.cli.commands.worker:scheduler", "Fire schedules and recover tasks, without running any."
    ),
    "exporter": CommandEntry(
        "relier.cli.commands.monitoring.exporter:exporter", "Serve metrics of the whole namespace for Prometheus."
    ),
    "tasks": CommandEntry("relier.cli.commands.tasks:tasks", "List, inspect, watch, count, cancel and forget tasks."),
    "why": CommandEntry("relier.cli.commands.why:why", "Explain what happened to a task, and what it waits for."),
    "dlq": CommandEntry("relier.cli.commands.dlq:dlq", "List, show, replay, edit and discard dead letters."),
    "queues": CommandEntry("relier.cli.commands.queues:queues", "List, pause and resume queues."),
    "schedules": CommandEntry(
        "relier.cli.commands.schedules:schedules", "List, preview, add, pause, resume, run and remove schedules."
    ),
    "batches": CommandEntry("relier.cli.commands.batches:batches", "List, show and cancel workflows."),
    "nodes": CommandEntry(
        "relier.cli.commands.nodes:nodes", "List workers, relays and other nodes; drain, resume and stop them."
    ),
    "workers": CommandEntry(
        "relier.cli.commands.workers:workers", "List workers and whether they are alive; drain them."
    ),
    "events": CommandEntry("relier.cli.commands.events:events", "Show the last changes; follow new ones."),
    "limits": CommandEntry(
        "relier.cli.commands.limits:limits", "Show the limits of running tasks; change them at run time."
    ),
    "slo": CommandEntry("relier.cli.commands.slo:slo", "Show how well objectives are met, and how tasks end."),
    "admission": CommandEntry(
        "relier.cli.commands.admission:admission", "Show how full the admission limits are; reset them."
    ),
    "schema": CommandEntry("relier.cli.commands.schema:schema", "Check stored tasks against new code before a deploy."),
    "audit": CommandEntry(
        "relier.cli.commands.audit:audit_command", "Verify that no task was lost and no unused key was left."
    ),
    "celery": CommandEntry("relier.cli.commands.celery:celery", "Move the tasks of a Celery app back to its broker."),
    "outbox": CommandEntry("relier.cli.commands.outbox:outbox", "Run the outbox relay; list and replay unsent rows."),
    "dashboard": CommandEntry("relier.dashboard.command:dashboard", "Serve pages that show and change all of this."),
    "config": CommandEntry("relier.cli.commands.config:config", "Show and validate the settings."),
    "shards": CommandEntry(
        "relier.cli.shards.commands:shards",
        "Show the shards, check where tasks lie, change their number.",
    ),
    "health": CommandEntry(
        "relier.cli.commands.monitoring.health:health", "Check the health of a process on this host."
    ),
    "doctor": CommandEntry("relier.cli.commands.doctor:doctor", "Check settings, store, workers and queues."),
    "backup": CommandEntry(
        "relier.cli.commands.backup:backup", "Write a snapshot of the store to a file, once or at intervals."
    ),
    "restore": CommandEntry("relier.cli.commands.backup:restore", "Replace the data of a stopped store with a backup."),
    "completion": CommandEntry(
        "relier.cli.commands.completion:completion", "Print a shell completion script for bash, zsh or fish."
    ),
}

EXIT_CODES = """\b
Exit codes:
  0  success, no problems found
  1  a check found a problem, a task does not exist, or an action was refused
  2  invalid command line or settings
  3  the store cannot be reached or written to"""


@click.group(
    cls=LazyGroup, entries=COMMANDS, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@store_options
@click.option("--shard", metavar="N", help="Only this shard, in a namespace with RELIER_SHARDS.")
@click.version_option(package_name="relier", prog_name="rl")
@click.pass_context
def rl(ctx: click.Context, /, **_: Any) -> None:
    """Relier: background tasks that survive dead workers.

    Every command accepts --url and --namespace, and every command that reports something accepts --json, before or
    after its name. With --json it prints one JSON document, with the key "error" on failure.

    Commands that take the id of a task also take the beginning of one, if no other task begins with it. Colours are off
    if the output is not a terminal, or if NO_COLOR is set.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """Run `rl`. Characters that the terminal cannot encode are printed as `?` instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        rl(prog_name="rl")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        click.echo(
            "rl: output is incomplete: no space left on device; free some space and run the command again",
            err=True,
        )
        # Otherwise the interpreter fails again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
