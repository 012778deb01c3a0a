"""rl doctor: is everything as it should be, and if not, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from relier import registry
from relier.cli.doctor import ledger_checks, server_checks, settings_checks
from relier.cli.doctor.outbox_checks import check_outbox
from relier.cli.doctor.verdict import Verdict, bad
from relier.cli.outbox_database import on_database
from relier.cli.output import harmless, many, print_json
from relier.cli.session import Exit, Session, exit_code_of, with_session
from relier.cli.worker_view import Staff
from relier.errors import (
    ConfigurationError,
    RelierError,
    StoreSetupError,
    StoreUnavailableError,
    WorkerInitializationError,
)
from relier.ledger.pages import read_stats
from relier.store.connect.address import target_of
from relier.store.sync_store import SyncStore
from relier.task import RlTask

MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


@click.command()
@click.argument("modules", nargs=-1)
@partial(on_database, required=False)
@with_session
def doctor(session: Session, modules: tuple[str, ...], database: str | None, table: str) -> Exit:
    """Check settings, store, workers and queues, and say what to do. With MODULES, also whether the store can keep what
    their tasks ask for; with a database, also its outbox.

    ✓ is fine, ! wants a look, ✗ is wrong. Exits with 1 where something is wrong, and with 3 where the store cannot be
    reached.
    """
    verdicts: list[Verdict] = []
    code = Exit.OK
    try:
        registry.load(modules)
        for verdict in examine(session, registry.known_tasks() if modules else (), (database, table)):
            verdicts.append(verdict)
            if not session.as_json:
                _tell(verdict)
    except RelierError as error:
        code = exit_code_of(error)
        check = {ConfigurationError: "settings", WorkerInitializationError: "modules"}.get(type(error), "reach")
        verdicts.append(_gave_up(error, "reach" if verdicts else check))
        if not session.as_json:
            _tell(verdicts[-1])
    wrong = sum(verdict.level == "bad" for verdict in verdicts)
    if session.as_json:
        print_json({"ok": not wrong, "checks": [asdict(verdict) for verdict in verdicts]})
    else:
        warned = sum(verdict.level == "warn" for verdict in verdicts)
        look = f" {many(warned, 'thing')} to look at." if warned else ""
        click.echo(f"{many(wrong, 'thing is', 'things are')} wrong.{look}" if wrong else f"Nothing is wrong.{look}")
    return code if code is Exit.STORE else Exit.PROBLEM if wrong else Exit.OK


def examine(
    session: Session, tasks: Iterable[RlTask[Any, Any]] = (), outbox: tuple[str | None, str] = (None, "")
) -> Iterator[Verdict]:
    """All checks, in the order in which one depends on another."""
    settings = session.settings
    target_of(settings)  # settings with a URL that cannot be used are not valid
    yield from settings_checks.check_settings(session, settings_checks.environment())
    yield from settings_checks.check_keys(session)
    # The store refuses a server that evicts; here it shall be looked at nevertheless.
    store = session.bare_store(redis_allow_eviction=True)
    yield from server_checks.check_reach(store)
    found, info = store.probe(), server_checks.info_of(store)
    yield from server_checks.check_server(info, found)
    if found.role not in {"slave", "replica"}:  # whoever is one was told so
        yield from check_writes(session, store)
    yield from server_checks.check_persistence(info, found)
    yield from server_checks.check_durability(settings, info, found, store.replicas, tasks)
    yield from server_checks.check_memory(info, found, settings)
    yield from server_checks.check_clock(store)
    yield from settings_checks.check_checkpoints(settings)
    fit = True
    for verdict in ledger_checks.check_namespace(session, store):
        fit = fit and verdict.level != "bad"
        yield verdict
    if not fit:
        return
    stats = read_stats(store.run, session.ledger)
    yield from ledger_checks.check_birth(session, store, stats)
    staff = Staff(stats, settings.heartbeat_ttl)
    yield from ledger_checks.check_workers(stats, staff)
    yield from ledger_checks.check_queues(stats, staff)
    yield from ledger_checks.check_schedule(session, store, stats)
    yield from ledger_checks.check_dead(stats)
    url, table = outbox
    if url is not None:
        yield from check_outbox(url, table, stats)


def check_writes(session: Session, store: SyncStore) -> Iterator[Verdict]:
    """Whether the store takes a write: it answers reads also while it has too few replicas, or a full disk."""
    try:
        store.command("DEL", f"{session.ledger.prefix}probe", retry=True)  # there is no such key
    except StoreSetupError:  # scripts may be allowed more than we are
        return
    except StoreUnavailableError as error:
        yield _gave_up(error, "server")


def _gave_up(error: RelierError, check: str) -> Verdict:
    """Relier's messages say what happened and why, then, after a semicolon, what to do."""
    what, _, advice = " ".join(str(error).split()).partition("; ")
    return bad(check, f"{_capital(what)}.", f"{_capital(advice)}." if advice else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tell(verdict: Verdict) -> None:
    mark, colour = MARKS[verdict.level]
    click.echo(f"{click.style(mark, fg=colour)} {harmless(verdict.says)}")
    if verdict.advice:
        click.echo(f"    {harmless(verdict.advice)}")
