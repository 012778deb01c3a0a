"""rl doctor: check the installation, and say what to do about problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from relier import registry
from relier.cli.doctor import ledger_checks, server_checks, settings_checks
from relier.cli.doctor.check_result import CheckResult, bad, print_check
from relier.cli.doctor.config_checks import check_server_config
from relier.cli.doctor.outbox_checks import check_outbox
from relier.cli.node_view import WorkerView
from relier.cli.outbox_database import database_options
from relier.cli.output import plural, print_json
from relier.cli.session import Exit, Session, exit_code_of, with_session
from relier.errors import (
    ConfigurationError,
    RelierError,
    StoreSetupError,
    StoreUnavailableError,
    WorkerInitializationError,
)
from relier.ledger.pages import read_stats
from relier.ledger.stats import Stats
from relier.store.connect.address import target_of
from relier.store.sync_store import SyncStore
from relier.task import RlTask


@click.command()
@click.argument("modules", nargs=-1)
@partial(database_options, required=False)
@with_session
def doctor(session: Session, modules: tuple[str, ...], database: str | None, table: str) -> Exit:
    """Check settings, store, workers and queues.

    With MODULES, also checks that the store supports the durability their tasks ask for. With --database, also checks
    the outbox.

    ✓ is fine, ! needs attention, ✗ is wrong. Exits with 1 if something is wrong, and with 3 if the store cannot be
    reached.
    """
    verdicts: list[CheckResult] = []
    code = Exit.OK
    try:
        registry.load(modules)
        for verdict in examine(session, registry.known_tasks() if modules else (), (database, table)):
            verdicts.append(verdict)
            if not session.as_json:
                print_check(verdict)
    except RelierError as error:
        code = exit_code_of(error)
        check = {ConfigurationError: "settings", WorkerInitializationError: "modules"}.get(type(error), "reach")
        verdicts.append(_result_of(error, "reach" if verdicts else check))
        if not session.as_json:
            print_check(verdicts[-1])
    wrong = sum(verdict.level == "bad" for verdict in verdicts)
    if session.as_json:
        print_json({"ok": not wrong, "checks": [asdict(verdict) for verdict in verdicts]})
    else:
        warned = sum(verdict.level == "warn" for verdict in verdicts)
        look = f" {plural(warned, 'warning')}." if warned else ""
        click.echo(f"{plural(wrong, 'problem')} found.{look}" if wrong else f"No problems found.{look}")
    return code if code is Exit.STORE else Exit.PROBLEM if wrong else Exit.OK


def examine(
    session: Session, tasks: Iterable[RlTask[Any, Any]] = (), outbox: tuple[str | None, str] = (None, "")
) -> Iterator[CheckResult]:
    """Yield the results of all checks. Later checks depend on earlier ones."""
    settings = session.settings
    target_of(settings)  # an unusable URL means that the settings are invalid
    yield from settings_checks.check_settings(session, settings_checks.environment())
    yield from settings_checks.check_tls(settings)
    yield from settings_checks.check_keys(session)
    # Normally the store refuses a server that evicts keys; the doctor examines it anyway.
    store = session.bare_store(redis_allow_eviction=True)
    yield from server_checks.check_reach(store)
    found, info = store.probe(), server_checks.info_of(store)
    yield from server_checks.check_server(info, found)
    if found.role not in {"slave", "replica"}:  # a replica was reported above
        yield from check_writes(session, store)
    yield from server_checks.check_persistence(info, found)
    yield from check_server_config(settings, store, found)
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
    yield from check_ledger(session, store, stats)
    url, table = outbox
    if url is not None:
        yield from check_outbox(url, table, stats)


def check_ledger(session: Session, store: SyncStore, stats: Stats) -> Iterator[CheckResult]:
    """Check what the namespace holds: its age, workers, queues, schedules and dead letters."""
    workers = WorkerView(stats, session.settings.heartbeat_ttl)
    yield from ledger_checks.check_birth(session, store, stats)
    yield from ledger_checks.check_embedded(session.settings, stats, workers)
    yield from ledger_checks.check_workers(stats, workers)
    yield from ledger_checks.check_worker_clocks(workers)
    yield from ledger_checks.check_queues(stats, workers)
    yield from ledger_checks.check_schedule(session, store, stats)
    yield from ledger_checks.check_dead(stats)


def check_writes(session: Session, store: SyncStore) -> Iterator[CheckResult]:
    """Check that the store accepts writes: with too few replicas or a full disk it only answers reads."""
    try:
        store.command("DEL", f"{session.ledger.prefix}probe", retry=True)  # no such key exists
    except StoreSetupError:  # an ACL may forbid DEL but allow scripts
        return
    except StoreUnavailableError as error:
        yield _result_of(error, "server")


def _result_of(error: RelierError, check: str) -> CheckResult:
    """Turn an error into a result. Messages say what happened and why, then, after a semicolon, what to do."""
    what, _, advice = " ".join(str(error).split()).partition("; ")
    return bad(check, f"{_capital(what)}.", f"{_capital(advice)}." if advice else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
