"""What needs attention: the doctor's checks, and what only figures over time show. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from relier.cli.doctor import ledger_checks
from relier.cli.doctor.check_result import CheckResult, bad, warn
from relier.cli.node_view import WorkerView
from relier.cli.output import plural, span
from relier.cli.pipelined.limits import LimitsFound
from relier.dashboard.figures.outcomes import RECENT, RecentOutcomes
from relier.dashboard.reads.outbox import OutboxTableReport
from relier.ledger.stats import Stats

MOST_OF_A_KIND = 5
OUTBOX_LATE_MS = 60_000
LINKS = {
    "workers": "/nodes",
    "queues": "/queues",
    "limits": "/limits",
    "dead letters": "/dead",
    "schedule": "/tasks?state=scheduled",
    "objectives": "/tasks?state=dead",
    "outbox": "/outbox",
    "clock": "/nodes",
}
GENERAL = {"queues": "/queues", "workers": "/nodes"}


def entries(checks: Iterable[CheckResult]) -> list[dict[str, str]]:
    """Return what is not fine, problems first, at most MOST_OF_A_KIND of each kind, with a link to the page for it."""
    found = sorted((check for check in checks if check.level != "ok"), key=lambda check: check.level != "bad")
    seen = Counter[str]()
    shown = []
    for check in found:
        seen[check.check] += 1
        if seen[check.check] <= MOST_OF_A_KIND:
            shown.append(_entry(check))
    for kind, n in seen.items():
        if n > MOST_OF_A_KIND:
            more = plural(n - MOST_OF_A_KIND, f"more warning about {kind}", f"more warnings about {kind}")
            shown.append(_entry(warn(kind, f"{more}.", "")))
    return shown


def _entry(check: CheckResult) -> dict[str, str]:
    return {"level": check.level, "says": check.says, "advice": check.advice, "link": LINKS.get(check.check, "")}


def figure_checks(
    stats: Stats,
    workers: WorkerView,
    outcomes: RecentOutcomes,
    limits: LimitsFound,
    tables: Sequence[OutboxTableReport],
) -> Iterator[CheckResult]:
    """Yield the results of all checks that need no reads of their own."""
    yield from ledger_checks.check_workers(stats, workers)
    yield from ledger_checks.check_worker_clocks(workers)
    yield from ledger_checks.check_queues(stats, workers)
    yield from _check_objectives(outcomes)
    yield from _check_dead(stats, outcomes)
    yield from _check_limits(stats, limits)
    for table in tables:
        yield from _check_outbox(table)


def _check_objectives(outcomes: RecentOutcomes) -> Iterator[CheckResult]:
    for each in outcomes.judged():
        if each.firing:
            rule = each.firing[0]
            long = each.windows[rule.long]
            make = bad if rule.severity == "page" else warn
            yield make(
                "objectives",
                f"Objective {each.objective.label!r} is missed: {long.total - long.good:,} of {long.total:,} did not "
                f"do well in the last {rule.long}, more than {rule.threshold:g} times what it allows.",
                "See which tasks fail, and `rl slo report`.",
            )


def _check_dead(stats: Stats, outcomes: RecentOutcomes) -> Iterator[CheckResult]:
    recent = outcomes.ended()["dead"]
    for check in ledger_checks.check_dead(stats):
        if check.check == "dead letters" and recent:
            yield bad(
                "dead letters",
                f"Dead letters grow: {plural(recent, 'task')} died in the last {RECENT} minutes; there are "
                f"{stats.ended['dead']:,} in all.",
                "See what they have in common; replay them after a fix.",
            )
        else:
            yield check


def _check_limits(stats: Stats, limits: LimitsFound) -> Iterator[CheckResult]:
    held = sum(queue.held_back for queue in stats.queues)
    full = [
        key
        for key in limits.overview.keys.values()
        if key.numbers and 0 < key.numbers.concurrency <= key.running < key.live
    ]
    if full:
        names = ", ".join(f"{key.key} ({key.running:,} running, {key.live - key.running:,} wait)" for key in full[:3])
        more = f" and {len(full) - 3:,} more" if len(full) > 3 else ""
        yield warn("limits", f"Full limits: {names}{more}.", "If their tasks wait for too long, raise a limit.")
    elif held:
        says = f"{plural(held, 'task is', 'tasks are')} held back by limits."
        yield warn("limits", says, "If they wait for too long, raise a limit.")


def _check_outbox(table: OutboxTableReport) -> Iterator[CheckResult]:
    where = f"Outbox table {table.table}" + (f" of {table.database}" if table.database else "")
    if not table.alive:
        yield bad("outbox", f"{where}: its relay stopped sending heartbeats.", "Start `rl outbox relay`.")
        return
    if table.state != "answers":
        why = {"away": "is unreachable", "refuses": "refuses its relay"}.get(table.state, "has an unknown state")
        yield bad("outbox", f"{where}: the database {why}.", "See the relay's log.")
    for kind, state in table.breakers.items():
        if state == "open":
            yield bad("outbox", f"{where}: the target of {kind} rows does not answer.", "See the relay's log.")
    if table.oldest_age_ms is not None and table.oldest_age_ms >= OUTBOX_LATE_MS:
        waiting = plural(table.waiting or 0, "row waits", "rows wait")
        yield warn("outbox", f"{where}: {waiting}, the oldest for {span(table.oldest_age_ms)}.", "Start more relays.")
    if table.dead_rows:
        yield warn("outbox", f"{where}: {plural(table.dead_rows, 'dead row')}.", "See `rl outbox dead`.")


def figures(outcomes: RecentOutcomes) -> dict[str, Any]:
    """Return latencies, throughput, error rate and burn rates, as plain data."""
    ended = outcomes.ended()
    counted = ended["done"] + ended["dead"] + ended["expired"]
    return {
        "minutes": RECENT,
        "latency_ms": outcomes.latencies(),
        "throughput": ended.total() / outcomes.recent_seconds,
        "error_rate": (ended["dead"] + ended["expired"]) / counted if counted else None,
        "objectives": [
            {
                "objective": each.objective.label,
                "target": each.objective.target,
                "state": each.state,
                "burn_rates": {name: window.burn_rate for name, window in each.windows.items()},
                "budget_left": each.budget_left,
            }
            for each in outcomes.judged()
        ],
        "complete": outcomes.complete,
        "bars": outcomes.bars(),
    }
