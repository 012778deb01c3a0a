"""The entry point of `rl`: the table of commands.

This module imports nothing heavy; a test checks what `rl --help` loads.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click


class CommandEntry(NamedTuple):
    """One command: `module:name` of its click command, and its line in `rl --help`. Without help it is an alias."""

    target: str
    help: str = ""


# One line per command. An alias is another line with the same target and no help.
COMMANDS: dict[str, CommandEntry] = {
    "worker": CommandEntry("relier.cli.commands.worker:worker", "Run tasks."),
    "dev": CommandEntry("relier.cli.commands.worker:dev", "Run tasks, and restart when a source file changes."),
    "resurrector": CommandEntry(
        "relier.cli.commands.worker:resurrector", "Recover the tasks of dead workers, without running any."
    ),
    "run-resurrector": CommandEntry("relier.cli.commands.worker:resurrector"),
    "tasks": CommandEntry("relier.cli.commands.tasks:tasks", "List and cancel tasks."),
    "why": CommandEntry("relier.cli.commands.why:why", "Explain what happened to a task, and what it waits for."),
    "dlq": CommandEntry("relier.cli.commands.dlq:dlq", "List, show, replay and discard dead letters."),
    "queues": CommandEntry("relier.cli.commands.queues:queues", "List, pause and resume queues."),
    "workers": CommandEntry("relier.cli.commands.workers:workers", "List workers and whether they are alive."),
    "schema": CommandEntry("relier.cli.commands.schema:schema", "Check stored tasks against new code before a deploy."),
    "audit": CommandEntry(
        "relier.cli.commands.audit:audit_command", "Verify that no task was lost and no unused key was left."
    ),
    "celery": CommandEntry("relier.cli.commands.celery:celery", "Move the tasks of a Celery app back to its broker."),
    "outbox": CommandEntry("relier.cli.commands.outbox:outbox", "Run the outbox relay; list and replay unsent rows."),
    "doctor": CommandEntry("relier.cli.commands.doctor:doctor", "Check settings, store, workers and queues."),
}

EXIT_CODES = """\b
Exit codes:
  0  success, no problems found
  1  a check found a problem, a task does not exist, or an action was refused
  2  invalid command line or settings
  3  the store cannot be reached or written to; a worker: tasks were handed back"""


AS_JSON = "relier.as_json"  # set in click's `meta`, which all commands of one invocation share, if --json was given


class LazyGroup(click.Group):
    """A command group that imports a command when it runs and reports a RelierError as one line and an exit code."""

    def __init__(self, *args: Any, entries: Mapping[str, CommandEntry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [name for name, entry in self._entries.items() if entry.help]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.target.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._entries[name].help) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._entries and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self._entries, 1)
            hint = f"did you mean `rl {near[0]}`?" if near else "`rl --help` lists the commands"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            if ctx.meta.get(AS_JSON):  # --json promises one JSON document, for errors too
                import json

                click.echo(json.dumps({"error": error.format_message()}, indent=2, ensure_ascii=False))
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        from relier.errors import RelierError

        try:
            return super().invoke(ctx)
        except RelierError as error:
            from relier.cli.session import failure_of

            raise failure_of(error) from error


@click.group(
    cls=LazyGroup, entries=COMMANDS, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--url", metavar="URL", help="URL of the Redis or Valkey server. Overrides RELIER_REDIS_URL.")
@click.option("--namespace", metavar="NAME", help="Namespace to use. Overrides RELIER_NAMESPACE.")
@click.version_option(package_name="relier", prog_name="rl")
def rl(url: str | None, namespace: str | None) -> None:
    """Relier: background tasks that survive dead workers.

    Every command accepts --url and --namespace. Commands that report something also accept --json and print one JSON
    document, with the key "error" on failure.
    """


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
