"""Push a bulk to several shards. Each shard gets a bulk of its own, which is admitted or refused as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from relier.ledger.records import Submission
from relier.options import PushOptions
from relier.settings.shards import shard_of
from relier.submit.bulk import KEPT_BYTES, Bulk, Pushed
from relier.submit.client import Client
from relier.submit.push import CallArguments

if TYPE_CHECKING:
    from relier.task import RlTask


def bulk_of(task: RlTask[Any, Any], push: PushOptions, client: Client, task_ids: Iterable[str] | None = None) -> Bulk:
    """Return a new bulk. Its `parts` are sent one by one, or at the same time."""
    if client.settings.shards == 1:
        return Bulk(task, push, client, task_ids)
    return ShardedBulk(task, push, client, task_ids)


class ShardedBulk(Bulk):
    """Plan one bulk over several shards: each call goes into the bulk of the shard to which its id belongs."""

    def __init__(
        self, task: RlTask[Any, Any], push: PushOptions, client: Client, task_ids: Iterable[str] | None = None
    ) -> None:
        super().__init__(task, push, client, task_ids)
        self._parts: dict[int, Bulk] = {}
        self._places: list[tuple[int, int]] = []  # of each call, in order: its shard, and its number there

    def add(self, calls: Sequence[CallArguments]) -> None:
        """Check some calls and count them against the limits of their shards. Nothing is pushed yet."""
        found: dict[int, list[tuple[CallArguments, Submission]]] = {}
        for call, given in zip(calls, self._next_ids(len(self._ids), len(calls)), strict=True):
            task = self._make(call, given)
            self._ids.append(task.id)
            shard = shard_of(task.id, self.client.settings.shards)
            pairs = found.setdefault(shard, [])
            self._places.append((shard, self._part(shard).size + len(pairs)))
            pairs.append((call, task))
        for shard, pairs in found.items():
            tasks = [task for _, task in pairs]
            self._part(shard).take([call for call, _ in pairs], [task.id for task in tasks], tasks)

    def _part(self, shard: int) -> Bulk:
        if shard not in self._parts:
            chosen = None if self._chosen is None else ()
            part = self._parts[shard] = Bulk(self._task, self._push, self.client.shards[shard], chosen)
            part.keeps = KEPT_BYTES // self.client.settings.shards
        return self._parts[shard]

    def parts(self) -> Sequence[Bulk]:
        self.check_count(len(self._ids))
        return [self._parts[shard] for shard in sorted(self._parts)]

    def pushed(self) -> list[Pushed]:
        """Return all tasks, in order. If some were not accepted, raise an error with the ids of all."""
        self._outcomes = [self._parts[shard].outcome(number) for shard, number in self._places]
        return super().pushed()
