"""The kinds of command groups, and the options that every command accepts. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

AS_JSON = "relier.as_json"  # set in click's `meta`, which all commands of one invocation share, if --json was given
HELP = ("-h", "--help")


class CommandEntry(NamedTuple):
    """One command: `module:name` of its click command, and its line in `rl --help`. Without help it is an alias."""

    target: str
    help: str = ""


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --url and --namespace. They apply to a command and to all its subcommands."""
    for option in (
        click.option("--namespace", metavar="NAME", help="Namespace to use. Overrides RELIER_NAMESPACE."),
        click.option("--url", metavar="URL", help="URL of the Redis or Valkey server. Overrides RELIER_REDIS_URL."),
        click.option(
            "--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help="Print the result as JSON."
        ),
    ):
        function = option(function)
    return function


def _note_json(ctx: click.Context, _: click.Parameter, as_json: bool) -> bool:
    ctx.meta[AS_JSON] = as_json or ctx.meta.get(AS_JSON, False)
    return as_json


def refuse_unknown(ctx: click.Context, word: str, known: Iterable[str]) -> NoReturn:
    """Raise for an unknown command, with a "did you mean"."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    path = ctx.command_path
    hint = f"did you mean `{path} {near[0]}`?" if near else f"`{path} --help` lists the commands"
    raise click.UsageError(f"unknown command {word!r}; {hint}", ctx)


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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the table. click itself would import every command to check whether it is hidden."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=self._entries[name].help) for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._entries and not args[0].startswith("-") and not ctx.resilient_parsing:
            refuse_unknown(ctx, args[0], self._entries)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            if ctx.meta.get(AS_JSON):  # --json promises one JSON document, for errors too
                import json

                details = {"details": details} if (details := getattr(error, "details", ())) else {}
                document = {"error": error.format_message(), **details}
                click.echo(json.dumps(document, indent=2, ensure_ascii=False))
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        from relier.errors import RelierError

        try:
            return super().invoke(ctx)
        except RelierError as error:
            from relier.cli.session import failure_of

            raise failure_of(error) from error


class DefaultGroup(click.Group):
    """A command group that runs `default` if no command is named: `rl tasks --state dead` lists dead tasks.

    `aliases`: other names of its commands, which the help does not list.
    """

    def __init__(self, *args: Any, default: str, aliases: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subcommand_metavar = "[COMMAND] [ARGS]..."
        self._default = default
        self._aliases = aliases or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._end_of_own_options(args)
        rest = args[at:]
        unnamed = rest[0].startswith("-") and rest[0] not in HELP if rest else not ctx.resilient_parsing
        return super().parse_args(ctx, [*args[:at], self._default, *rest] if unnamed else args)

    def _end_of_own_options(self, args: list[str]) -> int:
        """Return the index at which the group's own options end. They come before the name of the command."""
        takes_value = {
            word: not param.is_flag for param in self.params if isinstance(param, click.Option) for word in param.opts
        }
        at = 0
        while at < len(args) and (word := args[at].partition("=")[0]) in takes_value:
            at += 2 if takes_value[word] and "=" not in args[at] else 1
        return min(at, len(args))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            refuse_unknown(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)
