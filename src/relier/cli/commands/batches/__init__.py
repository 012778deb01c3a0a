"""rl batches: the commands for workflows."""

from relier.cli.commands.batches.commands import batches

__all__ = ["batches"]
