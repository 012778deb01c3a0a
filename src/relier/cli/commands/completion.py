"""rl completion: print the script that makes a shell complete `rl` commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

INSTALL = {
    "bash": 'eval "$(rl completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(rl completion zsh)"    in ~/.zshrc',
    "fish": "rl completion fish | source    in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\nTo install it, add one line:\n" + "\n".join(f"  {line}" for line in INSTALL.values()))
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print the completion script for SHELL."""
    root = ctx.find_root()
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"click has no completion for {shell}")
    click.echo(made(root.command, {}, "rl", "_RL_COMPLETE").source())
