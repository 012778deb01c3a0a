"""rl celery: operate on a Celery app that uses Relier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from relier.cli.command_groups import store_options
from relier.cli.output import plural, print_json
from relier.cli.session import CommandFailure, Exit, Session, with_session
from relier.cli.shards.routes import refused, routed
from relier.errors import RelierError
from relier.submit.client import Client, use_client
from relier.version import how_to_install

if TYPE_CHECKING:
    from relier.celery.return_to_broker import Drained


@click.group()
@store_options
def celery(**_: Any) -> None:
    """Operate on a Celery app that keeps its tasks in the ledger."""


@celery.command()
@click.option("-A", "--app", "where", required=True, metavar="APP", help="Celery app, as for `celery -A`.")
@click.option("--dry-run", is_flag=True, help="Count the tasks; send and pause nothing.")
@with_session
@routed(refused("the Celery engine", "it uses no shards, so there is nothing to move"))
def drain(session: Session, where: str, dry_run: bool) -> Exit:
    """Send the waiting tasks to the broker as plain Celery messages, to stop using Relier.

    All queues are paused first and stay paused; running tasks finish. Afterwards, remove `install` from the app and
    restart its workers. Exits with 1 if some tasks stayed in the ledger because plain Celery cannot run them, and
    with 3 if the broker or the store does not answer.
    """
    try:
        from relier.celery.adoption import adoption_of, app_named
        from relier.celery.return_to_broker import broker_errors, see_broker
        from relier.celery.return_to_broker import drain as send_all
    except ImportError as error:
        raise CommandFailure(f"{error}; to install Celery, {how_to_install('celery')}", Exit.USAGE) from error
    use_client(Client(session.settings))
    app = app_named(where)
    adoption, paused = adoption_of(app), False
    try:
        if not dry_run:
            see_broker(app)
            paused = True
        drained = send_all(adoption, dry_run=dry_run)
    except RelierError:
        raise
    except broker_errors(app) as error:
        raise CommandFailure(f"the broker does not answer ({error}); {_advice(paused)}", Exit.STORE) from error
    _print(session, drained, dry_run=dry_run)
    return Exit.PROBLEM if drained.kept else Exit.OK


def _advice(paused: bool) -> str:
    """Return what was done and what to do when the broker does not answer."""
    if not paused:
        return "nothing was sent, and no queue was paused; check that it runs and that the app's broker_url is correct"
    return (
        "unsent tasks wait in the ledger, in paused queues; run this command again, or resume the queues with "
        "`rl queues resume`"
    )


def _print(session: Session, drained: Drained, *, dry_run: bool) -> None:
    if session.as_json:
        print_json({"sent": drained.sent, "kept": drained.kept, "running": drained.running, "dry_run": dry_run})
        return
    click.echo(f"{plural(drained.sent, 'task')} {'would be ' if dry_run else ''}sent to the broker.")
    if drained.running:
        click.echo(f"Still running: {plural(drained.running, 'task')}. Let them finish before you stop the workers.")
    if drained.kept:
        click.echo(
            f"{plural(len(drained.kept), 'task')} stayed in the ledger: plain Celery cannot run rl_tasks, or chords "
            f"that wait for their parts. For example: {', '.join(drained.kept[:3])}"
        )
