"""The parts of a workflow as users write them: signatures, chains, groups and batches. Creating them sends nothing.

    chain(fetch.s(url), parse.s(), store.si(report_id))
    group(resize.s(image) for image in images)
    batch([send.s(user) for user in users], then=report.si(), on_failure=alert.si(), on_complete=tidy.si())

A part is checked when it is created, like a push: a call that does not fit its task raises TypeError here, not in a
worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from relier.errors import ConfigurationError
from relier.options import PushOptions, Span

if TYPE_CHECKING:
    from relier.task import RlTask
    from relier.workflows.open_batch import OpenBatch
    from relier.workflows.receipt import SyncWorkflowReceipt, WorkflowReceipt

R = TypeVar("R", covariant=True)
A = TypeVar("A")
DEFAULT_LEASE_S = 60.0


class Part(Generic[R]):
    """A part of a workflow. `R` is the type of its result."""

    __slots__ = ()

    def check(self, *, given: bool) -> None:
        """Raise TypeError if a call does not fit its task. `given`: whether the previous part passes on a result."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The name of the part, as `rl batches` shows it."""
        raise NotImplementedError


class Workflow(Part[R]):
    """A part that can be pushed by itself."""

    __slots__ = ()

    async def apush(self, *, id: str | None = None) -> WorkflowReceipt[R]:  # noqa: A002 - the word users know
        """Push the workflow. When this returns, all of it is in the ledger.

        `id`: an id that you choose. If you push the same workflow again under the same id, no second one is created.
        """
        from relier.workflows.push import apush_workflow

        return await apush_workflow(self, id)

    def push(self, *, id: str | None = None) -> SyncWorkflowReceipt[R]:  # noqa: A002 - the word users know
        """Push the workflow, like `apush`, but block."""
        from relier.workflows.push import push_workflow

        return push_workflow(self, id)


@dataclass(frozen=True, slots=True)
class Signature(Part[R]):
    """One call of a task, to be pushed later. `takes`: the previous result of a chain becomes its first argument."""

    task: RlTask[Any, R]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: PushOptions
    takes: bool = True

    def check(self, *, given: bool) -> None:
        _refuse_keys(self)
        args = (None, *self.args) if given and self.takes else self.args
        self.task.arguments.check(args, self.kwargs)

    @property
    def label(self) -> str:
        return self.task.name


@dataclass(frozen=True, slots=True)
class Chain(Workflow[R]):
    """Parts that run one after the other. Each gets the result of the previous one."""

    links: tuple[Part[Any], ...]
    name: str = ""

    def check(self, *, given: bool) -> None:
        for link in self.links:
            link.check(given=given)
            given = brings_value(link)

    @property
    def label(self) -> str:
        return self.name or " → ".join(link.label for link in self.links[:3]) + (" → …" if len(self.links) > 3 else "")


@dataclass(frozen=True, slots=True)
class Batch(Workflow[R]):
    """Parts that run side by side, with callbacks. `collect`: keep their results, and pass the list to `then`."""

    members: tuple[Part[Any], ...]
    then: Part[Any] | None = None
    on_failure: Part[Any] | None = None
    on_complete: Part[Any] | None = None
    collect: bool = False
    name: str = ""
    lease: Span = DEFAULT_LEASE_S

    def check(self, *, given: bool) -> None:
        for member in self.members:
            member.check(given=given)
        for name, callback in self.callbacks():
            callback.check(given=self.collect and name == "then")

    def callbacks(self) -> Iterator[tuple[str, Part[Any]]]:
        for name in ("then", "on_failure", "on_complete"):
            callback = getattr(self, name)
            if callback is not None:
                yield name, callback

    @property
    def label(self) -> str:
        kind = "group" if self.collect else "batch"
        return self.name or (f"{kind} of {self.members[0].label}" if self.members else kind)

    def open(self, *, id: str | None = None) -> OpenBatch:  # noqa: A002 - the word users know
        """Open the batch for the duration of a block: `async with batch(…).open() as b: await b.aadd(…)`.

        The end of the block seals the batch. If the block raises, or its process dies, `then` never runs.
        """
        from relier.workflows.open_batch import OpenBatch

        return OpenBatch(self, id)


def brings_value(part: Part[Any]) -> bool:
    """Return whether a part passes a result on to the next part."""
    while isinstance(part, Chain):
        part = part.links[-1]
    return not isinstance(part, Batch) or part.collect


@overload
def chain(first: Part[A], /, *, name: str = "") -> Chain[A]: ...
@overload
def chain(first: Part[Any], second: Part[A], /, *, name: str = "") -> Chain[A]: ...
@overload
def chain(first: Part[Any], second: Part[Any], third: Part[A], /, *, name: str = "") -> Chain[A]: ...
@overload
def chain(first: Part[Any], second: Part[Any], third: Part[Any], fourth: Part[A], /, *, name: str = "") -> Chain[A]: ...
@overload
def chain(*links: Part[Any], name: str = "") -> Chain[Any]: ...
def chain(*links: Part[Any], name: str = "") -> Chain[Any]:
    """Return a chain: parts that run one after the other. Each gets the previous result as its first argument."""
    flat = [inner for link in _parts("chain", links) for inner in (link.links if isinstance(link, Chain) else (link,))]
    if not flat:
        raise ConfigurationError("a chain needs at least one task")
    made: Chain[Any] = Chain(tuple(flat), name)
    made.check(given=_needs_previous_result(flat[0]))
    return made


@overload
def group(*members: Part[A], name: str = "") -> Batch[list[A]]: ...
@overload
def group(members: Iterable[Part[A]], /, *, name: str = "") -> Batch[list[A]]: ...
def group(*members: Any, name: str = "") -> Batch[list[Any]]:
    """Return a group: parts that run side by side. A chain passes the list of their results to its next part."""
    if len(members) == 1 and not isinstance(members[0], Part):
        members = tuple(members[0])
    return Batch(_parts("group", members), collect=True, name=name)


@overload
def batch(
    members: Iterable[Part[Any]] = ...,
    /,
    *,
    then: Part[Any] | None = ...,
    on_failure: Part[Any] | None = ...,
    on_complete: Part[Any] | None = ...,
    name: str = ...,
    lease: Span = ...,
) -> Batch[None]: ...
@overload
def batch(
    members: Iterable[Part[A]] = ...,
    /,
    *,
    then: Part[Any] | None = ...,
    on_failure: Part[Any] | None = ...,
    on_complete: Part[Any] | None = ...,
    collect: bool,
    name: str = ...,
    lease: Span = ...,
) -> Batch[list[A]]: ...
def batch(
    members: Iterable[Part[Any]] = (),
    /,
    *,
    then: Part[Any] | None = None,
    on_failure: Part[Any] | None = None,
    on_complete: Part[Any] | None = None,
    collect: bool = False,
    name: str = "",
    lease: Span = DEFAULT_LEASE_S,
) -> Batch[Any]:
    """Return a batch: parts that run side by side, with callbacks. The ledger queues each callback at most once.

    then         when all members have succeeded; with `collect`, it gets the list of their results
    on_failure   when the first member ends dead or cancelled
    on_complete  when all members have ended, whether or not they succeeded

    `lease`: how long an open batch waits for its producer to add a task or to extend the lease.
    """
    made: Batch[Any] = Batch(_parts("batch", members), then, on_failure, on_complete, collect, name, lease)
    _parts("callbacks of a batch", [callback for _, callback in made.callbacks()])
    for callback_name, callback in made.callbacks():
        callback.check(given=collect and callback_name == "then")
    return made


def signature_of(
    task: RlTask[Any, A], options: PushOptions, args: tuple[Any, ...], kwargs: dict[str, Any], *, takes: bool
) -> Signature[A]:
    """Return a signature of a task. Raise TypeError if the call does not fit, with or without a previous result."""
    made: Signature[A] = Signature(task, args, kwargs, options, takes)
    made.check(given=takes and _needs_previous_result(made))
    return made


def _needs_previous_result(part: Part[Any]) -> bool:
    """Return whether one of the first calls of a part fits its task only together with a previous result."""
    if isinstance(part, Chain):
        return _needs_previous_result(part.links[0])
    if isinstance(part, Batch):
        return any(map(_needs_previous_result, part.members))
    if not isinstance(part, Signature):
        return False
    try:
        part.task.arguments.check(part.args, part.kwargs)
    except TypeError:
        return part.takes
    return False


def _parts(what: str, parts: Iterable[Any]) -> tuple[Part[Any], ...]:
    found = tuple(parts)
    for each in found:
        if not isinstance(each, Part):
            raise ConfigurationError(
                f"a {what} takes signatures (task.s(…)), chains, groups and batches, not {each!r:.60}"
            )
    return found


def _refuse_keys(part: Signature[Any]) -> None:
    options, task = part.options, part.task.options
    if options.task_id is not None or options.order_key is not None:
        raise ConfigurationError(
            f"task {part.task.name} in a workflow cannot have a task_id or an order_key of its own; give the workflow "
            f"an id instead: apush(id=…)"
        )
    if task.idempotent or task.idempotency_key is not None or options.idempotency_key is not None:
        raise ConfigurationError(
            f"task {part.task.name} has an idempotency key, but a task of a workflow cannot be the duplicate of "
            f"another task; give the workflow an id instead: apush(id=…); a second push then creates nothing"
        )
