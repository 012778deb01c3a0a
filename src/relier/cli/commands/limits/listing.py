"""rl limits list: the limits of live tasks, and the numbers that operators set."""

from __future__ import annotations

from typing import Any

import click

from relier.cli.output import plural, print_json
from relier.cli.session import Session, with_session
from relier.cli.table import print_table
from relier.ledger.limit_overview import LimitOverview, read_limits
from relier.ledger.limit_records import LimitedKey, LimitNumbers
from relier.limits import rate_text

HEADERS = ("LIMIT", "RUNNING", "WAITING", "AT ONCE", "RATE", "BURST", "SET BY")


@click.command("list")
@click.option("--name", "part", default="", metavar="TEXT", help="Only limits whose names or keys contain this.")
@click.option(
    "--limit", "most", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Maximum number to list."
)
@with_session
def list_command(session: Session, part: str, most: int) -> None:
    """List the limits of live tasks, one row per key, and the limits that operators set.

    The keys with the most waiting tasks come first. WAITING counts all tasks of a key that have not started, including
    those scheduled for later. If all tasks of a key are scheduled, its numbers are not shown.
    """
    limits = read_limits(session.run, session.ledger)
    found = [key for key in limits.keys.values() if part in key.key or part in key.name]
    found.sort(key=lambda key: (key.running - key.live, key.key))
    unused = [name for name in sorted(limits.set) if name not in limits.keys and part in name]
    shown = found[:most]
    if session.as_json:
        rows = [_as_dict(key, limits) for key in shown]
        chosen = {name: numbers_dict(numbers) for name, (numbers, _) in sorted(limits.set.items())}
        print_json(_document(session, now_ms=limits.now_ms, limits=rows, more=len(found) - len(shown), set=chosen))
        return
    table = [_row(key, limits) for key in shown]
    table += [(name, "", "", *_words(limits.set[name][0]), "operator") for name in unused]
    if not table:
        click.echo(f"No limits in {session.where}: no live task has one, and no operator set one.")
        return
    print_table(HEADERS, table, optional=("BURST", "SET BY"))
    if len(found) > most:
        click.echo(f"{plural(len(found) - most, 'more key')}; list them with --limit, or filter with --name.")


def _row(key: LimitedKey, limits: LimitOverview) -> tuple[str, ...]:
    by = "operator" if limits.chosen(key) else "code" if key.numbers else ""
    return key.key, f"{key.running:,}", f"{key.live - key.running:,}", *_words(key.numbers), by


def _words(numbers: LimitNumbers | None) -> tuple[str, str, str]:
    if numbers is None:
        return "", "", ""
    burst = f"{numbers.tolerance_us // numbers.interval_us:,}" if numbers.interval_us else ""
    return f"{numbers.concurrency:,}" if numbers.concurrency else "any", rate_text(numbers.interval_us) or "any", burst


def _as_dict(key: LimitedKey, limits: LimitOverview) -> dict[str, Any]:
    counts = {"key": key.key, "name": key.name or None, "running": key.running, "waiting": key.live - key.running}
    return counts | numbers_dict(key.numbers) | {"set_by_operator": limits.chosen(key) or None}


def _document(session: Session, **fields: Any) -> dict[str, Any]:
    return {"namespace": session.settings.namespace, **fields}


def numbers_dict(numbers: LimitNumbers | None) -> dict[str, Any]:
    """Return what a limit allows as JSON data; None means any number, or any rate."""
    found = numbers or LimitNumbers()
    return {
        "known": numbers is not None,
        "concurrency": found.concurrency or None,
        "rate": rate_text(found.interval_us) or None,
        "burst": found.tolerance_us // found.interval_us if found.interval_us else None,
    }
