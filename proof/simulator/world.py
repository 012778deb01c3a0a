"""A seeded world around the ledger: virtual time, processes that send calls, and a network and a store that misbehave.

A process is a generator. It yields a `Call` and gets the parsed answer: a RelierError as a value, or LOST if no answer
came in time. Or it yields a number of microseconds to wait. Processes live on nodes. A node can be killed (its
processes never run again), frozen (they continue later and do not notice) or cut off from the store. One
`random.Random(seed)` decides everything, so a seed always gives the same history.

    per message   lost; its answer lost; late, so that it arrives after its repetition or its sender's death; twice;
                  refused with "not now" (LOADING, NOREPLICAS, …): it did not run
    the store     unreachable; flapping (down or refusing, and up again, faster than a lease); TIME jumps; full; a
                  record removed by hand; emptied; a failover or restart that returns it to an earlier point. While a
                  rollback is being prepared, the level that survives it (replicated for a failover, fsync for a
                  restart) is not confirmed. So the lost suffix contains nothing acknowledged at that level, but it may
                  contain anything else.

Not covered: two stores that both take writes (split brain at `memory`), reads from a replica, byte limits of a claim.
For the ledger, a server that forgot its scripts is a refusal; store/network.py tests how the store layer handles it.
"""

from __future__ import annotations

import heapq
import pickle
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from proof.checker.checker import Checker
from proof.checker.ghost import Violation
from proof.model.model import Model
from proof.simulator.flows import Flows
from proof.simulator.profiles import Profile, profile_of
from relier.errors import IndeterminateError, RelierError, StoreFullError, StoreNotReadyError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Submission
from relier.settings import Settings
from relier.store.call import Arg, Call, Durability, result_or_error

if TYPE_CHECKING:
    from proof.simulator.actors import Worker
    from proof.simulator.damage import Damage
    from proof.simulator.faults import Faults

BASE_US = 1_700_000_000_000_000
TIMEOUT_US = 300_000
MS, SECOND = 1_000, 1_000_000
Steps = Generator[Any, Any, None]
T = TypeVar("T")


class _Lost:
    """No answer came in time: the call may have run, or may run later or never."""

    def __repr__(self) -> str:
        return "LOST"


LOST = _Lost()
_PENDING = _Lost()


def is_open(answer: Any) -> bool:
    """Return whether a client that must not give up asks again: there was no answer, or the answer was "not now"."""
    return answer is LOST or isinstance(answer, IndeterminateError | StoreFullError | StoreNotReadyError)


def ask(call: Call[Any], tries: int, pause_us: int = 100 * MS) -> Generator[Any, Any, Any]:
    """Send a call again until it is answered, like a client that knows that every call is safe to repeat."""
    answer: Any = LOST
    for _ in range(tries):
        answer = yield call
        if not is_open(answer):
            break
        yield pause_us
    return answer


# An immediate second run of the same call must change nothing. Sweeps are exempt: the second run does the next part.
REPEATABLE = frozenset(
    {
        "submit",
        "register",
        "beat",
        "retire",
        "order",
        "claim",
        "checkpoint",
        "step",
        "commit",
        "retry",
        "release",
        "bury",
    }
    | {"forfeit", "replay", "cancel", "discard", "pause", "resume", "open", "get", "owned"}
    | {"lock", "renew", "conclude", "unlock", "limit", "schedule", "fire", "unschedule", "schedules"}
    | {"open_batch", "seal_batch"}
)


class Backend(Protocol):
    """The store: one namespace, with a TIME that is set from outside. `model` is what the checker examines."""

    time_us: int
    full: bool

    @property
    def model(self) -> Model: ...
    def run(self, call: Call[Any]) -> Any: ...
    def snapshot(self) -> object: ...
    def restore(self, snapshot: object) -> None: ...
    def wreck(self, task_id: str) -> None: ...
    def wipe(self) -> None: ...
    def damage(self, damage: Damage) -> None: ...


class ModelBackend:
    """The model as a store."""

    def __init__(self, model: Model | None = None) -> None:
        self.model = model or Model()

    @property
    def time_us(self) -> int:
        return self.model.time_us

    @time_us.setter
    def time_us(self, time_us: int) -> None:
        self.model.time_us = time_us

    @property
    def full(self) -> bool:
        return self.model.full

    @full.setter
    def full(self, full: bool) -> None:
        self.model.full = full

    def run(self, call: Call[Any]) -> Any:
        return self.model.run(call)

    def snapshot(self) -> object:
        return pickle.dumps(self.model, pickle.HIGHEST_PROTOCOL)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, bytes)  # noqa: S101 - what snapshot() gave
        self.model = pickle.loads(snapshot)  # noqa: S301 - our own

    def wreck(self, task_id: str) -> None:
        """Remove a record by hand. Its index entry stays."""
        self.model.tasks.pop(task_id, None)

    def wipe(self) -> None:
        """Empty the store."""
        self.model = self.model.empty()

    def damage(self, damage: Damage) -> None:
        """Change keys by hand, as the damage says."""
        damage.wound(self.model)


class Node:
    """A place for processes: one operating system process of a worker, a producer, a sweeper or an operator."""

    __slots__ = ("cut_until", "dead", "frozen_until", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen_until = 0
        self.cut_until = 0


@cache
def ledger(namespace: str) -> Ledger:
    return Ledger(Settings(namespace=namespace, redis_url="embedded://"))


@cache
def built(move: Callable[..., Call[T]], *args: Any, **more: Any) -> Call[T]:
    """Return the call of a move. One that is sent again and again with the same arguments is built once."""
    return move(*args, **more)


class World:
    """One schedule: the scheduler, the network and the store. Actors are in actors.py, faults in faults.py."""

    def __init__(
        self,
        seed: int,
        profile: str | None = None,
        backend: Backend | None = None,
        *,
        trace: bool = False,
        namespace: str = "proof",
    ) -> None:
        self.seed = seed
        self.profile: Profile = profile_of(seed, profile)
        self.rng = random.Random(f"{seed} {self.profile.name}")
        self.backend: Backend = backend or ModelBackend()
        self.ledger = ledger(namespace)
        self.faults: Faults
        self.hires: type[Worker] | None = None  # a worker with a bug, instead of the correct one
        self.subs: dict[str, Submission] = {}
        self.flows = Flows(self.subs)
        self.others: dict[Arg, Submission] = {}  # the tasks that others continue as, by their encoded form
        self.checker = Checker(self)
        self.now = 0
        self.skew = self.foremost = 0
        self.healed = False
        self.in_flight = 0
        self.pushing = 0
        self.outage_until = 0
        self.refuses_until = 0
        self.stalled: Durability | None = None
        self.steps = 0
        self.last_us = 0
        self.events: deque[tuple[Any, ...]] = deque(maxlen=None if trace else 24)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._n = 0
        p = self.profile
        self._noise = (p.lost, p.lost + p.unanswered, p.lost + p.unanswered + p.late)
        self._noisy = self._noise[2] + p.twice

    # --- the scheduler -------------------------------------------------------------------------------------------

    def after(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        self._n += 1
        heapq.heappush(self._heap, (self.now + delay_us, self._n, act, args))

    def spawn(self, node: Node, steps: Steps | Coroutine[Any, Any, None], delay_us: int = 0) -> None:
        self.after(delay_us, self._resume, node, steps, None)

    def _resume(self, node: Node, steps: Steps, value: Any) -> None:
        if node.dead:
            return
        if node.frozen_until > self.now:
            self.after(node.frozen_until - self.now, self._resume, node, steps, value)
            return
        while True:
            try:
                wish = steps.send(value)
            except StopIteration:
                return
            if isinstance(wish, int):
                self.after(wish, self._resume, node, steps, None)
                return
            value = self._send(node, steps, wish)
            if value is _PENDING or node.dead:
                return

    def run_until(self, until: int, stop: Callable[[], bool] | None = None) -> bool:
        """Let events happen. Return False if the time is over before `stop` holds."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            if stop is not None and stop():
                return True
            when, _, act, args = heapq.heappop(heap)
            self.now = max(self.now, when)
            act(*args)
        self.now = max(self.now, until)
        return stop is not None and stop()

    # --- the network ---------------------------------------------------------------------------------------------

    def _send(self, node: Node, steps: Steps, call: Call[Any]) -> Any:
        if self.now < self.outage_until or self.now < node.cut_until:
            return self._time_out(node, steps)
        if self.now < self.refuses_until or self._refuses():
            self.events.append((self.steps, self.now, "REFUSED", call.script))
            return StoreNotReadyError("not now")
        roll = 1.0 if self.healed else self.rng.random()
        if roll >= self._noisy:
            return self._answer(call, self.apply(call))
        lost, unanswered, late = self._noise
        if roll < lost:
            return self._time_out(node, steps)
        if roll < unanswered:
            self.apply(call)
            return self._time_out(node, steps)
        delay = int(self.rng.expovariate(1 / 400_000)) + 1
        if roll >= late:
            self._delay(delay, call)
            return self._answer(call, self.apply(call))
        if delay >= TIMEOUT_US:
            self._delay(delay, call)
            return self._time_out(node, steps)
        self._delay(delay, call, node, steps)
        return _PENDING

    def _refuses(self) -> bool:
        chance = self.profile.refused  # an unneeded draw would change the histories of other profiles' seeds
        return bool(chance) and not self.healed and self.rng.random() < chance

    def _delay(self, delay: int, *message: Any) -> None:
        self.in_flight += 1
        self.after(delay, self._arrive, *message)

    def _time_out(self, node: Node, steps: Steps) -> Any:
        self.after(TIMEOUT_US, self._resume, node, steps, LOST)
        return _PENDING

    def _arrive(self, call: Call[Any], node: Node | None = None, steps: Steps | None = None) -> None:
        """Deliver a late message. If it has a sender, the sender still gets an answer."""
        self.in_flight -= 1
        reached = self.now >= self.outage_until
        answer = self._answer(call, self.apply(call), told=node is not None) if reached else LOST
        if node is not None and steps is not None:
            self._resume(node, steps, answer)

    def _answer(self, call: Call[Any], raw: Any, *, told: bool = True) -> Any:
        if isinstance(raw, RelierError):
            return raw
        if call.durability is self.stalled:
            return call.indeterminate()
        answer = result_or_error(call, raw)
        if told:
            self.checker.acknowledged(call, answer)
        return answer

    # --- the store -----------------------------------------------------------------------------------------------

    def time_us(self) -> int:
        """Return the store's TIME. It advances by a microsecond per call, so that calls of one moment can be told
        apart."""
        time_us = BASE_US + self.now + self.skew
        if time_us <= self.last_us < time_us + 1000:
            time_us = self.last_us + 1
        self.last_us = time_us
        return time_us

    def apply(self, call: Call[Any]) -> Any:
        """Run a call and check its effect. If the store refuses it, return the error as a value."""
        self.steps += 1
        time_us = self.backend.time_us = self.time_us()
        try:
            raw = self.backend.run(call)
        except StoreFullError as error:
            self.events.append((self.steps, self.now, call.script, call.args, "full"))
            self.checker.refused_as_full(call)
            return error
        self.events.append((self.steps, self.now, call.script, call.args, raw))
        self.checker.applied(call, raw, time_us)
        if call.script in REPEATABLE and self.rng.random() < 0.03:
            self._repeat(call, raw, time_us)
        return raw

    def _repeat(self, call: Call[Any], raw: Any, time_us: int) -> None:
        streams, before = _image(self.backend.model)
        again = self.backend.run(call)
        self.checker.applied(call, again, time_us)
        now_streams, after = _image(self.backend.model)
        # Equal states nearly always have equal bytes. Where they have not, the states themselves are compared.
        same = after == before or pickle.loads(after) == pickle.loads(before)  # noqa: S301 - our own
        if (now_streams != streams or not same) and not _took_only_what_it_queued(call, raw, again, time_us):
            raise Violation("repeat-changes-nothing", f"{call.script} {call.args} answered {raw}, then {again}")

    def note(self, *what: object) -> None:
        """Record a fault in the trace."""
        self.events.append((self.steps, self.now, *what))

    def history(self) -> list[str]:
        """Return the events, one per line: all of them if the world traces, otherwise the last ones."""
        return [_show(event) for event in self.events]

    def explain(self, violation: Violation) -> str:
        lines = self.history()[-20:]
        replay = f"python -m proof replay --seed {self.seed} --profile {self.profile.name}"
        head = f"seed {self.seed} ({self.profile.name}), step {self.steps}: {violation}"
        return "\n".join([head, *lines, replay])


def _image(model: Model) -> tuple[dict[str, Any], bytes]:
    """Return what a repeated call must not change: streams, whose entries never change, and the rest as bytes."""
    counts = {name: n for name, n in model.counts.items() if name != "refused"}
    parts = (model.tasks, model.due, model.ready, model.owned, model.ended, model.boots, model.idem, model.rates)
    marks = (
        model.tombs,
        model.pauses,
        model.holds,
        model.timetables,
        model.removed_fired,
        model.born,
        model.emptied,
        model.batches,
    )
    held_back = (model.lanes, model.lane_waits, model.sleepers, model.pacers, model.slots, model.paces, model.limited)
    streams = {topic: list(entries) for topic, entries in model.streams.items()}
    rest = (parts, marks, held_back, model.clock, model.helper_clock, counts)
    return streams, pickle.dumps(rest, pickle.HIGHEST_PROTOCOL)


def _took_only_what_it_queued(call: Call[Any], raw: Any, again: Any, time_us: int) -> bool:
    """Return whether a repeated claim only took tasks that the first run of the same call queued.

    A claim that ends an expired member of a batch queues the callbacks of that batch. It is not remembered if it took
    no task itself, so the repeat may take the callbacks, as the next claim would.
    """
    if call.script != "claim" or len(raw) != 2:  # it took tasks: the repeat must get the same ones
        return False
    arrivals = [text.split(b"\n")[1].split(b" ")[0] for _, text, _ in again[2:]]
    return bool(arrivals) and all(int(arrival) == time_us for arrival in arrivals)


def _show(event: tuple[Any, ...]) -> str:
    step, now, what, *rest = event
    detail = " ".join(_brief(part) for part in rest)
    return f"  {step:4} {now / SECOND:9.3f}s {what:10} {detail}"


def _brief(part: Any) -> str:
    if isinstance(part, list | tuple):
        return f"[{' '.join(map(_brief, part))}]"
    if isinstance(part, bytes):
        part = part.decode(errors="replace")
    words = " ".join(str(part).split())
    return words if len(words) <= 90 else f"{words[:87]}..."
