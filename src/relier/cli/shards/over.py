"""Run a command of `rl` on the shards that it concerns.

A command is written for one namespace, and gets a session of one shard. Its route says which shards it concerns: all of
them, unless it names something that lies in one. With several, each shard has a heading, and --json prints one document
with a list `shards`. A shard that does not answer is reported, and the others are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from relier.cli.output import collected, print_json
from relier.cli.session import CommandFailure, Exit, Session, exit_code_of, failure_of
from relier.cli.shards.routes import every_shard
from relier.errors import StoreError
from relier.submit.client import place_of


def run_over_shards(session: Session, function: Callable[..., Any], given: dict[str, Any]) -> int:
    """Run a command for a namespace with shards. Return the worst of its exit codes."""
    sessions = session.shards
    calls = getattr(function, "shard_route", every_shard)(session, sessions, given)
    if len(calls) == 1:
        ((one, changed),) = calls
        return int(function(one, **changed) or 0)
    return _run_all(function, calls)


def _run_all(function: Callable[..., Any], calls: Sequence[tuple[Session, dict[str, Any]]]) -> int:
    worst, documents = 0, []
    for n, (session, given) in enumerate(calls):
        if not session.as_json:
            click.echo(f"{'' if n == 0 else chr(10)}{click.style(heading(session), bold=True)}")
        token = collected.set([])
        try:
            code = int(function(session, **given) or 0)
            found = {key: value for document in collected.get() or () for key, value in document.items()}
        except StoreError as error:
            code, found = int(exit_code_of(error)), {"error": str(error)}
            _show(session, failure_of(error))
        except CommandFailure as error:
            code, found = error.exit_code, {"error": error.message}
            _show(session, error)
        finally:
            collected.reset(token)
        worst = max(worst, code)
        documents.append({"shard": session.settings.shard, **found})
    if calls[0][0].as_json:
        print_json({"shards": documents})
    return worst


def _show(session: Session, error: CommandFailure) -> None:
    if not session.as_json:
        error.show()
        if error.exit_code == Exit.STORE:
            click.echo("  (this shard is left out; its tasks wait until it is back)", err=True)


def heading(session: Session) -> str:
    """Return the line above what a command shows of one shard."""
    return f"Shard {session.settings.shard}: {place_of(session.settings)}"
