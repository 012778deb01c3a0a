"""Turn a workflow into tasks that are submitted now and plans that the store submits later. No IO.

A workflow is a tree. A chain inside a batch is one member of the batch. Its first link is submitted with the batch.
When a link is done, the next link is submitted, at the same place in the batch. A group inside a chain is a batch
inside the chain's batch. The outermost batch represents the whole workflow: a chain by itself becomes a batch with one
member.

A `Unit` is submitted in one call. A batch whose tasks do not fit into one unit is opened, filled unit by unit, and
sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec.structs import replace

from relier.errors import InvalidSubmissionError
from relier.ledger.batches.membership import INHERITED, AddedPlans, BatchHeader, Member, packed_plan
from relier.ledger.ledger import CHUNK_BYTES, CHUNK_TASKS
from relier.ledger.records import Submission

MAX_DEPTH = 10  # batches inside batches


@dataclass(frozen=True, slots=True)
class Input:
    """Where a task finds its input: one field of a batch's results or, if `field` is empty, all results."""

    batch: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class TaskNode:
    """One task. `make` returns its submission, given its place in a batch and its input."""

    make: Callable[[Member | None, Input | None], Submission]


@dataclass(frozen=True, slots=True)
class ChainNode:
    """Tasks and groups that run one after the other.

    `header`: the chain's own batch, if it is not inside another one.
    """

    links: tuple[Node, ...]
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class BatchNode:
    """Tasks, chains and groups that run side by side, with callbacks by name: then, on_failure, on_complete."""

    members: tuple[Node, ...]
    header: BatchHeader
    callbacks: tuple[tuple[str, Node], ...] = ()


Node: TypeAlias = TaskNode | ChainNode | BatchNode


@dataclass(slots=True)
class Unit:
    """Tasks that are submitted in one call, with the batches to create for them."""

    headers: list[BatchHeader | AddedPlans] = field(default_factory=list)
    tasks: list[Submission] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(task.payload) for task in self.tasks) + sum(
            len(plan) for header in self.headers for _, plan in header.plans
        )

    def fits(self, other: Unit | None = None) -> bool:
        tasks = len(self.tasks) + (len(other.tasks) if other else 0)
        return tasks <= CHUNK_TASKS and self.size + (other.size if other else 0) <= CHUNK_BYTES

    def add(self, other: Unit) -> None:
        self.headers += other.headers
        self.tasks += other.tasks

    def submissions(self) -> list[Submission]:
        """Return the submissions. The first one also creates the batches."""
        if not self.headers:
            return self.tasks
        first, *rest = self.tasks
        member = first.member
        if member is None:
            raise InvalidSubmissionError(f"task {first.id} opens a batch, but is not a member of one")
        return [replace(first, member=replace(member, opens=tuple(self.headers))), *rest]


@dataclass(slots=True)
class WorkflowPlan:
    """A workflow to submit: its units in order, and the batches to seal afterwards, inner ones first."""

    id: str
    units: list[Unit]
    open: list[str] = field(default_factory=list)


def compile_workflow(root: ChainNode | BatchNode, lease_ms: int) -> WorkflowPlan:
    """Return the plan of a workflow. An empty batch has no units: create it with `Ledger.open_batch`, as sealed."""
    if not isinstance(root, ChainNode) and not root.members:
        return WorkflowPlan(root.header.id, [])
    compiled = _Compiler(lease_ms)
    units = _packed(compiled.root(root))
    return WorkflowPlan(root.header.id, units, compiled.open)


def compile_member(node: Node, member: Member, lease_ms: int) -> WorkflowPlan:
    """Return the plan that adds a node to an existing batch."""
    compiled = _Compiler(lease_ms)
    units = _packed(compiled.member(node, replace(member, tasks=weight(node)), None, 1))
    return WorkflowPlan(member.batch, units, compiled.open)


def empty_batch(root: BatchNode) -> BatchHeader:
    """Return the header of a batch without members, with its callbacks."""
    return _Compiler(0).header(root, None)


def weight(node: Node) -> int:
    """Return the number of tasks in a node, without callbacks."""
    if isinstance(node, TaskNode):
        return 1
    return sum(map(weight, node.links if isinstance(node, ChainNode) else node.members))


class _Compiler:
    def __init__(self, lease_ms: int, *, stored: bool = False) -> None:
        self.open: list[str] = []
        self._lease_ms = lease_ms
        self._stored = stored  # whether to compile a plan, which the store submits later

    def root(self, node: ChainNode | BatchNode, given: Input | None = None) -> Iterator[Unit]:
        if isinstance(node, BatchNode):
            yield from self.batch(node, None, given, 1)
            return
        member = Member(batch=node.header.id, place=0, tasks=weight(node), how=self._how("with"))
        units = list(self.chain(node, member, given, 1))
        yield from self._created(node.header, units)

    def member(self, node: Node, member: Member, given: Input | None, depth: int) -> Iterator[Unit]:
        """Return the units of one member."""
        if isinstance(node, TaskNode):
            yield Unit([], [node.make(member, given)])
        elif isinstance(node, ChainNode):
            yield from self.chain(node, member, given, depth)
        else:
            yield from self.batch(node, member, given, depth)

    def chain(self, node: ChainNode, member: Member, given: Input | None, depth: int) -> Iterator[Unit]:
        """Return the units of the first link.

        The later links become plans of the batch, from the last to the second.
        """
        batch, links = member.batch, node.links
        names = ["", *(f"{node.header.id}.{n}" for n in range(1, len(links))), member.next]
        plans: list[tuple[str, bytes]] = []
        for n in range(len(links) - 1, 0, -1):
            of = Member(batch=batch, place=INHERITED, next=names[n + 1], input=f">{names[n]}", tasks=None, how="stored")
            plans.append((names[n], self._plan(links[n], of, _given(links[n - 1], batch, names[n]), depth)))
        units = list(self.member(links[0], replace(member, next=names[1]), given, depth))
        if plans:
            units[0].headers.append(AddedPlans(batch, tuple(plans)))
        yield from units

    def _plan(self, node: Node, member: Member, given: Input, depth: int) -> bytes:
        units = _packed(_Compiler(0, stored=True).member(node, member, given, depth))
        if len(units) > 1:
            raise InvalidSubmissionError(
                f"a group after the first link of a chain has at most {CHUNK_TASKS} tasks and {CHUNK_BYTES:,} bytes, "
                f"because it is stored as one plan; nothing was pushed; let a task of the chain open a batch instead"
            )
        return packed_plan(units[0].headers, units[0].tasks)

    def batch(self, node: BatchNode, member: Member | None, given: Input | None, depth: int) -> Iterator[Unit]:
        """Return the units of a batch: those of its members. The first unit also has the header."""
        if depth > MAX_DEPTH:
            raise InvalidSubmissionError(
                f"groups and batches are nested at most {MAX_DEPTH} levels deep; nothing was pushed"
            )
        header, tasks = self.header(node, member), None if member is None else 0
        if not node.members:
            raise InvalidSubmissionError("a group inside a workflow needs at least one task; nothing was pushed")
        units: list[Unit] = []
        for place, each in enumerate(node.members):
            how = self._how("with")
            of = Member(batch=header.id, place=place, tasks=weight(each) if tasks is None else tasks, how=how)
            units += self.member(each, of, given, depth + 1)
        yield from self._created(header, units, member)

    def _created(self, header: BatchHeader, units: list[Unit], member: Member | None = None) -> list[Unit]:
        """Add the header of a batch to its first unit.

        If the members do not fit into one call, the batch starts open.
        """
        packed = _packed(units)
        if len(packed) > 1 and not self._stored:
            header = replace(header, open=True, lease_ms=self._lease_ms)
            self.open.append(header.id)
            packed = [packed[0], *(_adding(unit, header.id) for unit in packed[1:])]
        packed[0].headers.insert(0, header)
        first = packed[0].tasks[0]
        if not self._stored and first.member is not None:
            parent = member.batch if member is not None and member.how == "adds" else ""
            adder = member.adder if member is not None else None
            opens = replace(first.member, how="opens", batch=first.member.batch, parent=parent, adder=adder)
            packed[0].tasks[0] = replace(first, member=opens)
        return packed

    def header(self, node: BatchNode, member: Member | None) -> BatchHeader:
        after = Input(node.header.id) if node.header.collects else None
        plans = tuple((name, self._callback(each, after)) for name, each in node.callbacks)
        return replace(node.header, parent=member, plans=plans)

    def _callback(self, node: Node, given: Input | None) -> bytes:
        if isinstance(node, TaskNode):
            return packed_plan([], [node.make(None, given)])
        if isinstance(node, BatchNode) and not node.members:
            raise InvalidSubmissionError("a callback needs at least one task; nothing was pushed")
        units = _packed(_Compiler(0, stored=True).root(node, given))
        if len(units) > 1:
            raise InvalidSubmissionError(
                f"a callback has at most {CHUNK_TASKS} tasks and {CHUNK_BYTES:,} bytes; nothing was pushed; let the "
                f"callback open a batch instead"
            )
        return packed_plan(units[0].headers, units[0].tasks)

    def _how(self, word: Literal["with"]) -> Literal["with", "stored"]:
        return "stored" if self._stored else word


def _given(previous: Node, batch: str, name: str) -> Input:
    """Return where a link finds the result of the previous link."""
    while isinstance(previous, ChainNode):
        previous = previous.links[-1]
    return Input(previous.header.id) if isinstance(previous, BatchNode) else Input(batch, f">{name}")


def _adding(unit: Unit, batch: str) -> Unit:
    """Return a unit whose tasks are added to a batch that an earlier unit created."""
    return Unit(unit.headers, [_joining(task, batch) for task in unit.tasks])


def _joining(task: Submission, batch: str) -> Submission:
    member = task.member
    if member is not None and member.batch == batch and member.how == "with":
        return replace(task, member=replace(member, how="adds"))
    if member is not None and member.how == "opens" and not member.parent:
        return replace(task, member=replace(member, parent=batch))
    return task


def _packed(units: Sequence[Unit] | Iterator[Unit]) -> list[Unit]:
    """Merge neighbouring units into as few as possible."""
    packed: list[Unit] = []
    for unit in units:
        if packed and packed[-1].fits(unit):
            packed[-1].add(unit)
        else:
            packed.append(unit)
    return packed
