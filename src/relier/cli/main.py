"""`rl`: names of commands and where they are. Nothing heavy is imported here: a test sees what `rl --help` loads."""

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


class Entry(NamedTuple):
    """One command: `module:name` of its click command, and its line in the help. Without a line it is not listed."""

    target: str
    help: str = ""


# A command is one line here; an alias is one more line with the same target and no help.
COMMANDS: dict[str, Entry] = {
    "worker": Entry("relier.cli.commands.worker:worker", "Run tasks."),
    "dev": Entry("relier.cli.commands.worker:dev", "Run tasks while you write them: starts over on every change."),
    "resurrector": Entry("relier.cli.commands.worker:resurrector", "Sweep alone: return the tasks of dead workers."),
    "run-resurrector": Entry("relier.cli.commands.worker:resurrector"),
    "tasks": Entry("relier.cli.commands.tasks:tasks", "List tasks; cancel some."),
    "why": Entry("relier.cli.commands.why:why", "Tell the life of one task, and what it waits for."),
    "dlq": Entry("relier.cli.commands.dlq:dlq", "Dead letters: list them; show, replay, discard."),
    "queues": Entry("relier.cli.commands.queues:queues", "What waits in each queue; pause and resume."),
    "workers": Entry("relier.cli.commands.workers:workers", "Who works, and who stopped giving signs of life."),
    "schema": Entry("relier.cli.commands.schema:schema", "Check, before a deploy, what new code could not run."),
    "audit": Entry("relier.cli.commands.audit:audit_command", "Prove that no task was lost and no key leaks."),
    "celery": Entry("relier.cli.commands.celery:celery", "Celery apps with Relier installed: the way back."),
    "outbox": Entry("relier.cli.commands.outbox:outbox", "Tasks that commit with a database: their relay."),
    "doctor": Entry("relier.cli.commands.doctor:doctor", "Check settings, store, workers and queues."),
}

EXIT_CODES = """\b
Exit codes:
  0  it worked, and nothing is wrong
  1  something is wrong, was not found, or was refused
  2  the command line or the settings cannot be understood
  3  the store cannot be reached, or refuses to work"""


AS_JSON = "relier.as_json"  # in click's `meta`, which all commands of one line share: somebody said --json


class LazyGroup(click.Group):
    """A group that imports a command when it runs, and turns Relier's errors into one line and an exit code."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
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
            hint = f"did you mean `rl {near[0]}`?" if near else "`rl --help` lists what there is"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            if ctx.meta.get(AS_JSON):  # a program that reads a document gets one
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
@click.option("--url", metavar="URL", help="The store, instead of RELIER_REDIS_URL.")
@click.option("--namespace", metavar="NAME", help="The namespace, instead of RELIER_NAMESPACE.")
@click.version_option(package_name="relier", prog_name="rl")
def rl(url: str | None, namespace: str | None) -> None:
    """Relier: background work that cannot get lost.

    Every command also takes --url and --namespace, and those that answer take --json: one JSON document, {"error": …}
    where they fail.
    """


def main() -> None:
    """The entry point. A terminal that cannot show a letter gets a `?` for it, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        rl(prog_name="rl")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        click.echo(
            "rl: there is no space left for its output, which is not complete; free some, run it again", err=True
        )
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries again at its end
        sys.exit(1)
