"""rl celery: an app that Relier is installed into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relier.cli.output import many, print_json
from relier.cli.session import Exit, Failure, Session, with_session
from relier.errors import RelierError
from relier.submit.client import Client, use_client
from relier.version import how_to_install

if TYPE_CHECKING:
    from relier.celery.return_to_broker import Drained


@click.group()
def celery() -> None:
    """Celery apps that keep their tasks in the ledger."""


@celery.command()
@click.option("-A", "--app", "where", required=True, metavar="APP", help="The app, as `celery -A` takes it.")
@click.option("--dry-run", is_flag=True, help="Only count: send nothing, pause nothing.")
@with_session
def drain(session: Session, where: str, dry_run: bool) -> Exit:
    """Send what waits in the ledger to the broker, as plain messages: the way back to Celery without Relier.

    All queues are paused first and stay so; what runs comes to its end. Then take `install` out of the app, and
    restart its workers. Exit code 1 where tasks stayed behind that no plain worker could run, 3 where the broker or the
    store does not answer.
    """
    try:
        from relier.celery.adoption import adoption_of, app_named
        from relier.celery.return_to_broker import broker_errors, see_broker
        from relier.celery.return_to_broker import drain as send_all
    except ImportError as error:
        raise Failure(f"{error}; to install Celery, {how_to_install('celery')}", Exit.USAGE) from error
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
        raise Failure(f"the broker does not answer ({error}); {_left(paused)}", Exit.STORE) from error
    _tell(session, drained, dry_run=dry_run)
    return Exit.PROBLEM if drained.kept else Exit.OK


def _left(paused: bool) -> str:
    """How things are, and what to do, once the broker is away."""
    if not paused:
        return "nothing was sent, and no queue was paused; see that it runs, and that the app's broker_url leads to it"
    return (
        "what did not go there waits in the ledger, in queues that are paused; run this again, or let workers go on "
        "with `rl queues resume`"
    )


def _tell(session: Session, drained: Drained, *, dry_run: bool) -> None:
    if session.as_json:
        print_json({"sent": drained.sent, "kept": drained.kept, "running": drained.running, "dry_run": dry_run})
        return
    click.echo(f"{many(drained.sent, 'task')} {'would go' if dry_run else 'went'} to the broker.")
    if drained.running:
        click.echo(f"Still running: {many(drained.running, 'task')}; let them end before you stop the workers.")
    if drained.kept:
        click.echo(
            f"{many(len(drained.kept), 'task')} stayed behind, rl_tasks or chords that wait for their parts, which "
            f"plain Celery cannot run: {', '.join(drained.kept[:3])}"
        )
