"""rl limits set, rl limits clear: change limits at run time."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

import click

from relier.cli.commands.limits.listing import numbers_dict
from relier.cli.output import print_json
from relier.cli.session import DRY_RUN, CommandFailure, Exit, Session, with_session
from relier.cli.shards.routes import routed, to_limit
from relier.errors import ConfigurationError
from relier.ledger.limit_overview import read_limits, set_limit
from relier.ledger.limit_records import LimitNumbers
from relier.limits import Limit, numbers_in_words
from relier.submit.run_limits import limit_word

NONE = "none"


@click.command("set")
@click.argument("name")
@click.option("--concurrency", metavar="N", help="How many tasks may run at once, or `none` for any number.")
@click.option("--rate", metavar="RATE", help="How often a task may start, such as 100/min, or `none`.")
@click.option("--burst", type=click.IntRange(1), metavar="N", help="How many tasks may start at once under the rate.")
@click.option("--force", is_flag=True, help="Set the limit even if no live task has it.")
@DRY_RUN
@with_session
@routed(to_limit)
def set_command(
    session: Session,
    name: str,
    concurrency: str | None,
    rate: str | None,
    burst: int | None,
    force: bool,
    dry_run: bool,
) -> None:
    """Set the numbers of a limit. They replace those in the code until `rl limits clear`.

    NAME is a key that `rl limits` shows, such as tenant:42, or the name that all its keys share: `per` as written in
    the code, such as 'tenant:{tenant_id}', or task:shop.mail.send for a limit without `per`. The numbers of a key
    override those of its name.

    Options you omit keep their current value. Running tasks are not affected.
    """
    if concurrency is None and rate is None and burst is None:
        raise click.UsageError("give --concurrency, --rate or --burst")
    limits = read_limits(session.run, session.ledger)
    name = known_limit(name, limits.names(), force=force)
    before = limits.numbers(name)
    after = changed_numbers(before or LimitNumbers(), concurrency, rate, burst)
    changed = before != after or name not in limits.set
    if not dry_run:
        session.run(session.ledger.open())
        changed = set_limit(session.run, session.ledger, name, after).verdict == "ok"
    if session.as_json:
        done = {"limit": name, "changed": changed and not dry_run, "dry_run": dry_run}
        print_json(done | ({"would_change": changed} if dry_run else {}) | numbers_dict(after))
        return
    verb = "would allow" if dry_run else "now allows" if changed else "already allowed"
    click.echo(f"Limit {name!r} {verb} {numbers_in_words(after)}.")


def changed_numbers(now: LimitNumbers, concurrency: str | None, rate: str | None, burst: int | None) -> LimitNumbers:
    """Return the current numbers, changed by the options that were given."""
    most = now.concurrency if concurrency is None else 0 if concurrency == NONE else _count(concurrency)
    interval, tolerance = now.interval_us, now.tolerance_us
    if rate == NONE:
        interval = tolerance = 0
    elif rate is not None:
        _, interval, tolerance = _parsed(rate, burst)
    elif burst is not None:
        tolerance = interval * burst
    if burst is not None and not interval:
        raise click.UsageError("--burst needs a rate: give --rate too")
    return LimitNumbers(most, interval, tolerance)


def _parsed(rate: str, burst: int | None) -> tuple[int, int, int]:
    try:
        numbers = Limit(rate=rate, burst=burst).numbers()
    except ConfigurationError as error:
        raise click.UsageError(str(error).partition(" is invalid: ")[2] or str(error)) from error
    return numbers.concurrency, numbers.interval_us, numbers.tolerance_us


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        hint = "; to stop a queue, use `rl queues pause`" if text == "0" else ""
        raise click.UsageError(f"--concurrency must be a whole number from 1 to 1,000,000, or none{hint}")
    return int(text)


@click.command("clear")
@click.argument("name")
@DRY_RUN
@with_session
def clear_command(session: Session, name: str, dry_run: bool) -> None:
    """Clear the numbers that an operator set for NAME. The numbers in the code apply again."""
    limits = read_limits(session.run, session.ledger)
    if name not in limits.set and limit_word(name) not in limits.set and name in limits.names():
        _report_clear(session, name, changed=False, dry_run=dry_run)
        return
    name = known_limit(name, limits.set, what="nothing is set for limit")
    changed = True
    if not dry_run:
        changed = set_limit(session.run, session.ledger, name, None).verdict == "ok"
    _report_clear(session, name, changed=changed, dry_run=dry_run)


def _report_clear(session: Session, name: str, *, changed: bool, dry_run: bool) -> None:
    if session.as_json:
        done = {"limit": name, "changed": changed and not dry_run, "dry_run": dry_run}
        print_json(done | ({"would_change": changed} if dry_run else {}))
    elif changed:
        click.echo(f"Limit {name!r} {'would be' if dry_run else 'was'} cleared: the numbers in the code apply.")
    else:
        click.echo(f"Limit {name!r} was not set by an operator: nothing to clear.")


def known_limit(name: str, known: Collection[str], *, force: bool = False, what: str = "no live task has limit") -> str:
    """Return the name or key of a known limit. Raise CommandFailure with a suggestion if there is none."""
    if name in known:
        return name
    name = limit_word(name)
    if name in known or force:
        return name
    near = get_close_matches(name, sorted(known), 1)
    hint = f"did you mean {near[0]!r}?" if near else "`rl limits` lists them"
    anyway = "; to set it for future tasks, add --force" if what.startswith("no live") else ""
    raise CommandFailure(f"{what} {name!r}; {hint}{anyway}", Exit.PROBLEM)
