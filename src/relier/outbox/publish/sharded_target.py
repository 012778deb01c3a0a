"""Send rows to a ledger with shards: each row to the shard to which its id belongs.

An unreachable shard must not stop the rows of the others. So its rows wait in the table for a while, like rows that a
limit refuses, as long as another shard answers. Only if none does, it is an outage of the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from relier.errors import RelierError
from relier.outbox.publish.target import Deferred, LedgerTarget, Outage, Outcome
from relier.outbox.row import LEDGER, Row
from relier.settings.shards import shard_of
from relier.submit.client import Client

UNREACHABLE_S = 5.0  # how long the rows of an unreachable shard wait


class ShardedLedgerTarget:
    """Sends rows to the ledgers of all shards."""

    kind = LEDGER
    chunk_size = LedgerTarget.chunk_size

    def __init__(self, client: Client) -> None:
        self._client = client
        self._targets = [LedgerTarget(shard) for shard in client.shards]

    def publish(self, rows: Sequence[Row]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        shards = [shard_of(row.task_id, len(self._targets)) for row in rows]
        for shard in dict.fromkeys(shards):
            here = [row for row, its in zip(rows, shards, strict=True) if its == shard]
            found = self._targets[shard].publish(here)
            outcomes |= {row.id: outcome for row, outcome in zip(here, found, strict=True)}
        unreachable = {shard for row, shard in zip(rows, shards, strict=True) if isinstance(outcomes[row.id], Outage)}
        if unreachable and (set(shards) > unreachable or self._any_answers(unreachable)):
            outcomes = {row: Deferred(UNREACHABLE_S) if isinstance(it, Outage) else it for row, it in outcomes.items()}
        return [outcomes[row.id] for row in rows]

    def _any_answers(self, unreachable: set[int]) -> bool:
        """Return whether a shard other than these answers."""
        for number, shard in enumerate(self._client.shards):
            if number not in unreachable:
                try:
                    shard.sync_store.command("PING")
                except RelierError:
                    continue
                return True
        return False

    def close(self) -> None:
        self._client.close()
