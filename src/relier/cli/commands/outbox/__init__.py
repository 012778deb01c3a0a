"""rl outbox: run the relay, and list and replay rows."""

from relier.cli.commands.outbox.rows import outbox

__all__ = ["outbox"]
