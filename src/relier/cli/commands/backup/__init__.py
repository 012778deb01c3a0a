"""rl backup and rl restore."""

from relier.cli.commands.backup.make import backup
from relier.cli.commands.backup.restore import restore

__all__ = ["backup", "restore"]
