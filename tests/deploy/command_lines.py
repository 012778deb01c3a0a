"""Check command lines of `rl` without running them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from relier.cli.main import rl


def check_command_line(words: Sequence[str]) -> None:
    """Parse a command line down to its last command. click raises if an option or a value is wrong."""
    ctx = click.Context(rl, info_name="rl")
    command: click.Command | None = rl
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        name, found, left = command.resolve_command(ctx, rest)
        assert found is not None, f"there is no command {name}"
        if isinstance(found, click.Group):
            ctx, command, rest = click.Context(found, parent=ctx, info_name=name), found, left
            continue
        if "RELIER_OUTBOX_DATABASE_URL" in [getattr(param, "envvar", None) for param in found.params]:
            left = [*left, "--database", "sqlite://"]  # it comes from the environment there
        found.make_context(name, left, parent=ctx)
        return
    raise AssertionError(f"{' '.join(words)} names no command")
