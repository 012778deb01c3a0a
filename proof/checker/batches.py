"""The invariants of batches. What must follow each member's end is derived from calls and from the simulated plan.

links-follow           after a done link the next one is submitted, unless the batch was cancelled
callbacks-once         `then`, `on_failure` and `on_complete` are submitted exactly when they must be, and once
batch-counts           counts, state and results of a batch are those of its members
no-batch-is-stuck      a batch ends when all its members have ended; a lost producer keeps no batch open
closed-takes-nothing   only its own running members can add to a sealed batch
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proof.checker.ghost import LIVE, GhostBatch, GhostStrand, Violation
from proof.simulator.flows import Flow
from relier.ledger.defaults import DEAD_TTL_MS, MEMBER_SPAN, RESULT_TTL_MS

if TYPE_CHECKING:
    from proof.checker.history import History

LEASE_MS = 1500  # of open batches in schedules
FIRED = {"then": "t", "on_failure": "f", "on_complete": "c"}


# --- events --------------------------------------------------------------------------------------------------------


def _ensure(history: History, batch_id: str) -> GhostBatch:
    """Return the ghost of a batch. Create it, and those of the batches around it, if they are missing."""
    flow, batches = history.world.flows.batches[batch_id], history.memory.batches
    if batch_id not in batches:
        batches[batch_id] = GhostBatch(batch_id, flow.opens, history.time_ms + LEASE_MS)
        if flow.place is not None:
            of, strand, at = flow.place
            _arrive(history, _ensure(history, of), strand, at)
    return batches[batch_id]


def _arrive(history: History, batch: GhostBatch, strand: str, at: int) -> None:
    if strand not in batch.strands:
        batch.strands[strand] = GhostStrand(at)
        batch.lease_end = history.time_ms + LEASE_MS  # a new member is a sign of life


def member_entered(history: History, task_id: str) -> None:
    place = history.world.flows.places.get(task_id)
    if place is not None:
        _arrive(history, _ensure(history, place[0]), place[1], place[2])


def member_ended(history: History, task_id: str, state: str) -> None:
    place = history.world.flows.places.get(task_id)
    if place is not None and place[0] in history.memory.batches:
        value = history.returned.get(task_id)
        named = task_id.encode()
        _ended(history, place, state, named if value is None else named + b"\n" + value, task=True)


def _ended(history: History, place: tuple[str, str, int], state: str, value: bytes, *, task: bool) -> None:
    of, name, at = place
    batch, flow = history.memory.batches[of], history.world.flows.batches[of]
    strand, links = batch.strands.get(name), flow.strands[name]
    if strand is None or strand.at != at or strand.outcome:
        return
    stopped = is_stopped(history, of)
    if state == "done":
        strand.given = None
    if state == "done" and at + 1 < len(links) and not stopped:
        strand.at, strand.given = at + 1, value if task else None
        history.due |= history.world.flows.firsts(links[at + 1])
        return
    cut = state == "done" and at + 1 < len(links)
    strand.outcome, strand.value = "cancelled" if cut else state, value
    if strand.outcome != "done" and not stopped:
        _fire(history, batch, "on_failure")


def member_replayed(history: History, task_id: str) -> None:
    place = history.world.flows.places.get(task_id)
    while place is not None and place[0] in history.memory.batches:
        batch = history.memory.batches[place[0]]
        strand = batch.strands.get(place[1])
        if strand is None or not strand.outcome:
            return
        strand.outcome = ""
        if batch.ended is None:
            return
        batch.ended = None
        place = history.world.flows.batches[batch.id].place


def is_stopped(history: History, batch_id: str) -> bool:
    batch = history.memory.batches.get(batch_id)
    place = history.world.flows.batches[batch_id].place
    return (batch is not None and batch.stopped) or (place is not None and is_stopped(history, place[0]))


def _fire(history: History, batch: GhostBatch, callback: str) -> None:
    link = history.world.flows.batches[batch.id].callbacks.get(callback)
    if link is not None and callback not in batch.fired:
        batch.fired.add(callback)
        history.due |= history.world.flows.firsts(link)


def settle_batches(history: History) -> None:
    """End the batches that are complete, inner batches first."""
    open_ones = [batch for batch in history.memory.batches.values() if batch.ended is None and not batch.open]
    complete = [batch for batch in open_ones if all(strand.outcome for strand in batch.strands.values())]
    for batch in complete:
        batch.ended = history.time_ms
        stopped, whole = (
            is_stopped(history, batch.id),
            batch.count("done") == len(batch.strands) and not batch.abandoned,
        )
        if whole and not stopped:
            _fire(history, batch, "then")
        _fire(history, batch, "on_complete")
        place = history.world.flows.batches[batch.id].place
        if place is not None and place[0] in history.memory.batches:
            how = "done" if whole else "cancelled" if stopped else "dead"
            _ended(history, place, how, f"@{batch.id}".encode(), task=False)
    if complete:
        settle_batches(history)


# --- replies -------------------------------------------------------------------------------------------------------


def heard_open_batch(history: History, raw: Any) -> dict[str, str]:
    if raw[0] == b"ok":
        _ensure(history, str(history.args[0]))
    return {}


def heard_extend_batch(history: History, raw: Any) -> dict[str, str]:
    batch = history.memory.batches.get(str(history.args[0]))
    if (raw[0] == b"ok") != (batch is not None and batch.open):
        raise Violation("batch-counts", f"extend of {history.args[0]} was told {raw}")
    if raw[0] == b"ok" and batch is not None:
        batch.lease_end = history.time_ms + LEASE_MS
    return {}


def heard_seal_batch(history: History, raw: Any) -> dict[str, str]:
    batch, gives_up = history.memory.batches.get(str(history.args[0])), history.args[1] == "1"
    if (batch is None) != (raw[0] == b"missing"):
        raise Violation("accepted-is-kept", f"seal of {history.args[0]} was told {raw}")
    if batch is not None and (raw[0] == b"ok") != batch.open:
        raise Violation("closed-takes-nothing", f"seal of {batch.id} was told {raw}")
    if raw[0] == b"ok" and batch is not None:
        _seal(history, batch, gives_up)
    return {}


def _seal(history: History, batch: GhostBatch, abandoned: bool) -> None:
    batch.open = False
    if abandoned:
        batch.abandoned = True
        _fire(history, batch, "on_failure")


def heard_cancel_batch(history: History, raw: Any) -> dict[str, str]:
    batch_id, after, most = str(history.args[0]), float(history.args[1] or "-inf"), int(history.args[2])
    batch = history.memory.batches.get(batch_id)
    if batch is None or batch.ended is not None:
        if raw[0] == b"ok":
            raise Violation("batch-counts", f"cancel of {batch_id}, which is {batch}, was told ok")
        return {}
    batch.stopped, batch.open = True, False
    members = history.world.backend.model.batches[batch_id].members
    said = {}
    live = {links[batch.strands[name].at] for name, links in _running(history, batch)}
    order = sorted((members[i] % (2 * MEMBER_SPAN), i) for i in live)
    for _, task_id in [row for row in order if row[0] > after][:most]:
        ghost = history.memory.ghosts.get(task_id)
        if ghost is not None and (
            ghost.state in {"queued", "scheduled"} or (ghost.state == "running" and not ghost.asked)
        ):
            said[task_id] = "running" if ghost.state == "running" else "cancelled"
    return said


def _running(history: History, batch: GhostBatch) -> list[tuple[str, list[str]]]:
    strands = history.world.flows.batches[batch.id].strands
    return [(name, strands[name]) for name, strand in batch.strands.items() if not strand.outcome]


def heard_reap(history: History, raw: Any) -> dict[str, str]:
    """Check that the sweep sealed all open batches whose lease has run out, and no others."""
    model = history.world.backend.model
    for batch in list(history.memory.batches.values()):
        group = model.batches.get(batch.id)
        if group is not None and group.abandoned and batch.open:
            if batch.lease_end > history.time_ms:
                raise Violation("no-batch-is-stuck", f"{batch.id} was abandoned {batch.lease_end} at {history.time_ms}")
            _seal(history, batch, True)
        elif batch.open and batch.lease_end <= history.time_ms and raw < int(history.args[0]):
            raise Violation("no-batch-is-stuck", f"{batch.id} is open after {batch.lease_end}")
    return {}


def heard_member(history: History, task_id: str, entry: str, answer: Any) -> None:
    """Check that a batch accepted the members that it must accept, and no others."""
    of, how, parent, *adder = entry.split(" ")[1:]
    target = parent if how == "opens" and parent != "-" else of
    batch = history.memory.batches.get(target)
    if how == "with" or (how == "opens" and parent == "-") or batch is None:
        return
    ghost = history.memory.ghosts.get(adder[0])
    mine = ghost is not None and ghost.state == "running" and [str(ghost.fence), ghost.owner] == adder[1:]
    mine = mine and history.world.flows.places.get(adder[0], ("",))[0] == target
    taken = isinstance(answer, bytes)
    takes = batch.ended is None and not batch.abandoned and not is_stopped(history, target) and (batch.open or mine)
    if taken != takes and (taken or answer[0] == b"closed"):
        raise Violation("closed-takes-nothing", f"{task_id} was told {answer}, {target} is {batch}")


# --- the state -----------------------------------------------------------------------------------------------------


def check_batches(history: History, script: str) -> None:
    """Check that every batch in the store is as the history says."""
    if history.due:
        raise Violation("links-follow", f"{sorted(history.due)} should have entered in {script}")
    model, memory = history.world.backend.model, history.memory
    gone = [batch_id for batch_id in memory.batches if batch_id not in model.batches]
    for batch_id in gone:
        _vanished(history, script, batch_id)
    for batch_id in gone:
        del memory.batches[batch_id]
    if len(model.batches) != len(memory.batches):
        raise Violation("batch-counts", f"{sorted(model.batches)} after {script}, not {sorted(memory.batches)}")
    for batch_id, batch in memory.batches.items():
        group, flow = model.batches[batch_id], history.world.flows.batches[batch_id]
        state = "ended" if batch.ended is not None else "open" if batch.open else "sealed"
        ends = [strand.outcome for strand in batch.strands.values()]
        expected = (state, len(ends), ends.count("done"), ends.count("dead"), ends.count("cancelled"))
        found = (group.state, group.count("size"), *map(group.count, ("done", "dead", "cancelled")))
        if found != expected:
            raise Violation("batch-counts", f"{batch_id} after {script}: {found}, not {expected}")
        if (group.fired or batch.fired) and {*group.fired} != {FIRED[name] for name in batch.fired}:
            raise Violation("callbacks-once", f"{batch_id} after {script}: fired {group.fired}, not {batch.fired}")
        if (group.stopped, group.abandoned) != (batch.stopped, batch.abandoned):
            raise Violation("batch-counts", f"{batch_id} after {script}: stopped, abandoned differ from {batch}")
        _check_results(batch, flow, group.results)


def _check_results(batch: GhostBatch, flow: Flow, results: dict[str, bytes]) -> None:
    strands = batch.strands.values()
    given = [strand.given for strand in strands if strand.given is not None]
    kept = [strand.value for strand in strands if strand.outcome == "done"] if flow.collects else []
    if not results and not given and not kept:
        return
    found = sorted(value for name, value in results.items() if name.startswith(">"))
    if found != sorted(given):
        raise Violation("results-stand", f"{batch.id} holds {found} for its links, not {given}")
    if sorted(value for name, value in results.items() if not name.startswith(">")) != sorted(kept):
        raise Violation("results-stand", f"{batch.id} holds {results}, not {kept}")
    for name, strand in batch.strands.items():
        if name.isdigit() and flow.collects and strand.outcome == "done" and results.get(name) != strand.value:
            raise Violation("results-stand", f"{batch.id}: {results} at {name}, not {strand.value!r}")


def _vanished(history: History, script: str, batch_id: str) -> None:
    flows, memory = history.world.flows.batches, history.memory
    batch = memory.batches[_root(flows, batch_id)]
    if script != "reap" or batch.ended is None or batch.ended + kept_ms(batch) > history.time_ms:
        raise Violation("kept-to-its-end-of-life", f"batch {batch_id} of {batch} vanished in {script}")
    then = flows[batch_id].callbacks.get("then", "")
    ghost = memory.ghosts.get(then)
    if ghost is not None and (ghost.state in LIVE or ghost.state == "dead"):
        raise Violation("results-stand", f"batch {batch_id} vanished while {then} may ask for its results")


def _root(flows: dict[str, Flow], batch_id: str) -> str:
    while (place := flows[batch_id].place) is not None:
        batch_id = place[0]
    return batch_id


def kept_ms(batch: GhostBatch) -> int:
    return max(RESULT_TTL_MS, DEAD_TTL_MS if batch.count("dead") else 0)


def check_none_is_stuck(history: History) -> None:
    """Check that every batch has ended, once every task has ended and sweeps have run."""
    stuck = [batch for batch in history.memory.batches.values() if batch.ended is None]
    if stuck:
        raise Violation("no-batch-is-stuck", f"{stuck}")
