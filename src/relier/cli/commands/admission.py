"""rl admission: show how full the admission limits are, and reset them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.namespace_reads import NamespaceReads, chunks
from relier.cli.output import plural, print_json, span
from relier.cli.session import DRY_RUN, CommandFailure, Exit, Session, with_session
from relier.cli.table import print_table
from relier.cli.task_selection import is_interactive
from relier.ledger import keys
from relier.ledger.pages import read_stats
from relier.ledger.stats import Stats
from relier.submit.guards import overall

HEADERS = ("LIMIT", "USED", "OF", "EMPTY")


@dataclass(frozen=True, slots=True)
class LimitUse:
    """How full a limit is. `used` and `limit` are None if only the code of a task knows them.

    `empty_in_ms`: when a rate limit is empty again if nothing is pushed; None for other limits. `problem`: why its
    state cannot be read.
    """

    name: str
    used: int | None = None
    limit: int | None = None
    empty_in_ms: int | None = None
    problem: str = ""


@click.group(cls=DefaultGroup, default="status", aliases={"list": "status", "show": "status"})
@store_options
def admission(**_: Any) -> None:
    """Show how full the admission limits are, and reset them.

    Without a command, shows the limits.
    """


@admission.command()
@click.option("--name", "part", default="", metavar="TEXT", help="Only limits whose names contain this.")
@with_session
def status(session: Session, part: str) -> None:
    """Show the limits that pushes count towards: rates in use, queue depths and bytes held.

    The limit `all` is that of the namespace. Limits named `key:…` belong to tasks, whose code knows their size. Sizes
    come from the settings of this command; each producer applies its own.
    """
    stats = read_stats(session.run, session.ledger)
    found = [use for use in (*rates(session), *backlogs(session, stats)) if part in use.name]
    if session.as_json:
        refused = stats.counts.get("refused", 0)
        rows = [asdict(use) for use in found]
        print_json(
            {"namespace": session.settings.namespace, "now_ms": stats.now_ms, "limits": rows, "refused": refused}
        )
    elif found:
        print_table(HEADERS, [_row(use) for use in found])
    else:
        click.echo(f"No admission limit is in use in {session.where}.")


def rates(session: Session) -> list[LimitUse]:
    """Return the rate limits in use, by name. A limit that was not used recently is not stored."""
    now_us = _now_us(session)
    found = []
    for name, value in sorted(read_rates(session).items()):
        if not value.isdigit():
            found.append(LimitUse(name, problem="another program wrote to it"))
            continue
        ahead_us = max(0, int(value) - now_us)
        if name == "all" and session.settings.admission_limit:
            limit = overall(session.settings)
            used, most = -(-ahead_us // limit.interval_us), session.settings.admission_limit
            found.append(LimitUse(name, min(used, most), most, ahead_us // 1000))
        elif ahead_us:
            found.append(LimitUse(name, empty_in_ms=ahead_us // 1000))
    return found


def read_rates(session: Session) -> dict[str, bytes]:
    """Return the stored state of every rate limit, by name."""
    before, reads = keys.spell(session.ledger.prefix, "rate").encode(), NamespaceReads(session.store, session.ledger)
    found: dict[str, bytes] = {}
    for some in (chunk for keys_found in reads.scan_for(before) for chunk in chunks(keys_found)):
        values = session.store.command("MGET", *some, retry=True)
        found |= {
            key[len(before) :].decode("utf-8", "surrogateescape"): value
            for key, value in zip(some, values, strict=True)
            if value is not None
        }
    return found


def _now_us(session: Session) -> int:
    seconds, micros = session.store.command("TIME", retry=True)
    return 1_000_000 * int(seconds) + int(micros)


def backlogs(session: Session, stats: Stats) -> Iterable[LimitUse]:
    """Yield the limits of queue depth and of bytes held, where the settings have them."""
    if session.settings.admission_max_depth:
        for queue in sorted(stats.queues, key=lambda queue: queue.queue):
            yield LimitUse(f"depth:{queue.queue}", queue.waiting, session.settings.admission_max_depth)
    if session.settings.admission_max_bytes:
        yield LimitUse("bytes", stats.counts.get("bytes", 0), session.settings.admission_max_bytes)


def _row(use: LimitUse) -> tuple[str, ...]:
    used = use.problem or ("" if use.used is None else f"{use.used:,}")
    size = "" if use.limit is None else f"{use.limit:,}"
    empty = "" if use.empty_in_ms is None else f"in {span(use.empty_in_ms)}" if use.empty_in_ms else "now"
    return use.name, used, size, empty


@admission.command()
@click.argument("names", nargs=-1, metavar="[LIMIT]...")
@click.option("--every", is_flag=True, help="Reset every rate limit of the namespace.")
@DRY_RUN
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_session
def reset(session: Session, names: tuple[str, ...], every: bool, dry_run: bool, yes: bool) -> Exit:
    """Empty rate limits, so that the next pushes are admitted at once. LIMIT is a name that `rl admission` shows.

    Depths and bytes count the stored tasks, and cannot be reset. Tasks are not affected.
    """
    if bool(names) == every:
        raise click.UsageError("give the names of limits, or --every")
    present = read_rates(session)
    chosen = sorted(present) if every else list(dict.fromkeys(names))
    _check_names(chosen)
    if every and chosen and not yes and not dry_run:
        if not is_interactive():
            raise click.UsageError(f"{plural(len(chosen), 'limit')} selected, but stdin is not a terminal; add --yes")
        click.confirm(f"Reset {plural(len(chosen), 'limit')} of {session.where}?", abort=True, err=True)
    full = [name for name in chosen if name in present]
    for some in chunks(full if not dry_run else ()):
        # One key per limit, and no key means an empty limit: a push at the same moment finds it full or empty.
        session.store.command("DEL", *(_key(session, name) for name in some), retry=True)
    _report(session, chosen, full, dry_run=dry_run)
    return Exit.OK


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name == "bytes" or name.startswith("depth:"):
            raise CommandFailure(
                f"limit {name!r} cannot be reset: it counts stored tasks, not pushes; run, cancel or discard tasks",
                Exit.USAGE,
            )


def _key(session: Session, name: str) -> bytes:
    return keys.spell(session.ledger.prefix, "rate", name).encode("utf-8", "surrogateescape")


def _report(session: Session, chosen: list[str], full: list[str], *, dry_run: bool) -> None:
    if session.as_json:
        rows = [{"limit": name, "was_in_use": name in full} for name in chosen]
        print_json({"namespace": session.settings.namespace, "dry_run": dry_run, "limits": rows})
        return
    for name in chosen:
        done = "would be reset" if dry_run else "was reset"
        click.echo(f"Limit {name!r} {done}." if name in full else f"Limit {name!r} is not in use: nothing to reset.")
    if not chosen:
        click.echo(f"No admission limit is in use in {session.where}.")
