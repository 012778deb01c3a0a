"""The shape of a schedule's workflows: the checker's own view of them, separate from what is sent to the store.

A batch has strands. Each strand is a list of links, and a link is a task or (`@<id>`) an inner batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relier.ledger.batches.membership import BatchHeader, Member
from relier.ledger.records import Submission
from relier.workflows.plan import BatchNode, ChainNode, Input, Node, TaskNode

CALLBACKS = ("then", "on_failure", "on_complete")


@dataclass(slots=True)
class Flow:
    """One batch: its strands by name, its callbacks, and its own place. `added`: strands that running members added.
    They are not part of its plan, so a batch that enters again after a rollback enters without them."""

    id: str
    collects: bool
    opens: bool = False
    strands: dict[str, list[str]] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)  # name -> its first link
    place: tuple[str, str, int] | None = None  # batch, strand, link
    added: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Flows:
    """All workflows of a schedule. `subs` are the schedule's submissions."""

    subs: dict[str, Submission]
    batches: dict[str, Flow] = field(default_factory=dict)
    places: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # task -> batch, strand, link

    def task(self, sub: Submission) -> TaskNode:
        """Return a task of a workflow, by its submission."""
        self.subs[sub.id] = sub

        def make(member: Member | None, _: Input | None) -> Submission:
            return Submission(
                **{name: getattr(sub, name) for name in sub.__struct_fields__ if name != "member"}, member=member
            )

        return TaskNode(_Made(make, sub.id))

    def chain(self, batch_id: str, links: list[Node]) -> ChainNode:
        return ChainNode(tuple(links), BatchHeader(id=batch_id, collects=True, chain=True))

    def register(self, node: ChainNode | BatchNode, place: tuple[str, str, int] | None = None) -> None:
        """Record what a workflow, or a batch in it, consists of."""
        flow = self.batches[node.header.id] = Flow(node.header.id, node.header.collects, place=place)
        members = (node,) if isinstance(node, ChainNode) else node.members
        for n, member in enumerate(members):
            self.strand(flow.id, str(n), member)
        for name, callback in node.callbacks if isinstance(node, BatchNode) else ():
            flow.callbacks[name] = self._link(callback)
            if not isinstance(callback, TaskNode):
                self.register(callback)

    def strand(self, batch_id: str, name: str, node: Node) -> None:
        links = list(_links(node))
        self.batches[batch_id].strands[name] = [self._link(link) for link in links]
        for n, link in enumerate(links):
            if isinstance(link, TaskNode):
                self.places[id_of(link)] = (batch_id, name, n)
            else:
                self.register(link, (batch_id, name, n))

    def _link(self, node: Node) -> str:
        return id_of(node) if isinstance(node, TaskNode) else f"@{node.header.id}"

    def firsts(self, link: str) -> set[str]:
        """Return the tasks that enter with a link."""
        if not link.startswith("@"):
            return {link}
        flow = self.batches[link[1:]]
        planned = (links for name, links in flow.strands.items() if name not in flow.added)
        return {task for links in planned for task in self.firsts(links[0])}


class _Made:
    """A function that makes a submission, with the id of that task."""

    def __init__(self, make: Callable[[Member | None, Input | None], Submission], task_id: str) -> None:
        self._make = make
        self.task_id = task_id

    def __call__(self, member: Member | None, given: Input | None) -> Submission:
        return self._make(member, given)


def id_of(node: TaskNode) -> str:
    assert isinstance(node.make, _Made)  # noqa: S101 - made by Flows.task
    return node.make.task_id


def _links(node: Node) -> list[TaskNode | BatchNode]:
    if isinstance(node, ChainNode):
        return [link for each in node.links for link in _links(each)]
    return [node]
