"""Turn the parts of a workflow into nodes for plan.py: ids, payloads, batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from relier.codec import decode
from relier.envelope import seal
from relier.errors import ConfigurationError
from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.defaults import DEAD_TTL_MS, RESULT_TTL_MS
from relier.ledger.records import Submission, new_task_id
from relier.options import milliseconds
from relier.settings.shards import derived, drawn, shard_of
from relier.store.call import Durability
from relier.submit.client import Client
from relier.submit.push import kept_ms, resurrections
from relier.submit.shards.routing import check_fits_shards
from relier.trace import current_trace
from relier.workflows.parts import DEFAULT_LEASE_S, Batch, Chain, Part, Signature
from relier.workflows.plan import BatchNode, ChainNode, Input, Node, TaskNode


class Builder:
    """Build the nodes of one workflow.

    `named`: the id of the workflow, if the caller gave one. The ids of its tasks and batches are derived from it, so
    that the same workflow gets the same ids again. The first node, number 0, has this id itself.

    `shard`: the shard of all its tasks and batches. By default, it is the shard of the first id.
    """

    def __init__(self, client: Client, named: str | None = None, first: int = 0, shard: int | None = None) -> None:
        self._client = client
        self._named = named
        self._numbers = count(first)
        self.shards = client.settings.shards
        self.shard = shard
        self.limits: set[str] = set()  # the keys of limits that its tasks have
        self.levels: set[Durability] = set()

    def node(self, part: Part[Any]) -> Node:
        if isinstance(part, Signature):
            return TaskNode(self._maker(part))
        if isinstance(part, Chain):
            header = self.header(part)  # before the links: number 0 is the id of the workflow
            return ChainNode(tuple(map(self.node, part.links)), header)
        if isinstance(part, Batch):
            return self.batch(part)
        raise ConfigurationError(
            f"{part!r:.60} is not a part of a workflow; pass signatures (task.s(…)), chains, groups or batches"
        )

    def batch(self, part: Batch[Any]) -> BatchNode:
        header = self.header(part)
        callbacks = tuple((name, self.node(callback)) for name, callback in part.callbacks())
        return BatchNode(tuple(map(self.node, part.members)), header, callbacks)

    def header(self, part: Chain[Any] | Batch[Any]) -> BatchHeader:
        settings = self._client.settings
        return BatchHeader(
            id=self._id("b"),
            collects=isinstance(part, Chain) or part.collect,
            chain=isinstance(part, Chain),
            name=part.label[:200],
            lease_ms=lease_ms(part),
            result_ttl_ms=kept_ms(None, settings.result_ttl, RESULT_TTL_MS),
            dead_ttl_ms=kept_ms(None, settings.dead_ttl, DEAD_TTL_MS),
        )

    def _id(self, kind: str) -> str:
        """Return an id for a task (`t`) or a batch (`b`)."""
        number = next(self._numbers)
        if self._named is not None:
            made = self._named if number == 0 else f"{self._named}.{kind}{number}"
        else:
            made = new_task_id()
        if self.shards == 1:
            return made
        if self.shard is None:
            self.shard = shard_of(made, self.shards)
        if self._named is None:
            return made if shard_of(made, self.shards) == self.shard else drawn(new_task_id, self.shard, self.shards)
        return made if number == 0 else derived(made, self.shard, self.shards)

    def _maker(self, part: Signature[Any]) -> Callable[[Member | None, Input | None], Submission]:
        task_id = self._id("t")

        def make(member: Member | None, given: Input | None) -> Submission:
            return self._submission(part, task_id, member, given if part.takes else None)

        return make

    def _submission(self, part: Signature[Any], task_id: str, member: Member | None, given: Input | None) -> Submission:
        task, push, settings = part.task, part.options, self._client.settings
        options = task.options
        level = push.durability or options.durability or Durability(settings.durability)
        self.levels.add(level)
        queue = options.queue if push.queue is None else push.queue
        times: dict[str, Any] = dict(push.times())
        called = part.args if given is None else (PreviousResult(), *part.args)
        limits = task.guards.limits(called, part.kwargs, queue)
        if self.shards > 1:
            check_fits_shards(task)
            self.limits.update(limit.key for limit in limits)
        encode = task.arguments.encode if given is None else task.arguments.encode_after
        payload = seal(
            encode(part.args, part.kwargs),
            schema_version=options.schema_version,
            pushed_ms=time.time_ns() // 1_000_000,
            trace=current_trace(),
            task_id=task_id,
            name=options.name,
            keyring=self._client.keyring,
            flow=_flow(member, given),
        )
        return Submission(
            id=task_id,
            name=options.name,
            payload=payload,
            queue=queue,
            priority=options.priority if push.priority is None else push.priority,
            max_resurrections=resurrections(options.max_resurrections, settings.max_resurrections),
            on_lost=options.on_lost,
            result_ttl_ms=kept_ms(options.result_ttl, settings.result_ttl, RESULT_TTL_MS),
            dead_ttl_ms=kept_ms(options.dead_ttl, settings.dead_ttl, DEAD_TTL_MS),
            durability=level,
            member=member,
            limits=limits,
            **times,
        )


class PreviousResult:
    """Stand in for a task's first argument, the previous result, which is not known at the push."""

    def __format__(self, _: str) -> str:
        raise ValueError("its first argument is the result of the task before it, which is not known at the push")

    def __getattr__(self, _: str) -> str:
        return format(self)

    def __getitem__(self, _: object) -> str:
        return format(self)


def lease_ms(part: Part[Any]) -> int:
    """Return how long a batch stays open unless its lease is extended (ms)."""
    return max(1, milliseconds("lease", part.lease if isinstance(part, Batch) else DEFAULT_LEASE_S))


def _flow(member: Member | None, given: Input | None) -> str:
    """Return the field `flow` of an envelope."""
    if member is None and given is None:
        return ""
    of = "-" if member is None else member.batch
    return f"{of} -" if given is None else f"{of} {given.batch} {given.field}".rstrip()


Shape = Callable[[Any], Any]


def shape_of(part: Part[Any]) -> Shape:
    """Return a function that converts plain values to a part's result, including its models."""
    if isinstance(part, Signature):
        return part.task.arguments.decode_result
    if isinstance(part, Chain):
        return shape_of(part.links[-1])
    if isinstance(part, Batch) and part.collect:
        shapes = list(map(shape_of, part.members))
        return lambda values: [_shaped(shapes, n, value) for n, value in enumerate(values)]
    return lambda _: None


def _shaped(shapes: list[Shape], place: int, value: Any) -> Any:
    return shapes[place](value) if place < len(shapes) else plain_shape(value)


def plain_shape(value: Any) -> Any:
    """Return a result as plain values, for a receipt that does not know the workflow's parts."""
    if isinstance(value, list):
        return [plain_shape(each) for each in value]
    return None if value is None else decode(value)
