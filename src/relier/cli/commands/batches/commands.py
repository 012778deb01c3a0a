"""rl batches: list, show and cancel workflows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.find.batch_ids import full_batch_id
from relier.cli.output import one_line, plural, print_json, print_sentences, span, when
from relier.cli.session import DRY_RUN, Session, with_session
from relier.cli.shards.routes import routed, to_batch
from relier.cli.table import print_table
from relier.errors import BatchNotFoundError
from relier.ledger.batches.records import BatchMember, BatchRecord, BatchState, Stage

HEADERS = ("ID", "NAME", "STATE", "DONE", "FAILED", "CANCELLED", "AGE")
MOST_SHOWN = 20


@click.group(cls=DefaultGroup, default="list", aliases={"ls": "list", "inspect": "show"})
@store_options
def batches(**_: Any) -> None:
    """List, show and cancel workflows: batches, groups and chains.

    Without a command, lists them.
    """


@batches.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number to list.")
@click.option("--failed", is_flag=True, help="List only batches with a member that failed.")
@with_session
def list_command(session: Session, limit: int, failed: bool) -> None:
    """List workflows with their progress, running ones first."""
    found, more = _read(session, limit, failed=failed)
    now = session.run(session.ledger.stats("")).now_ms
    if session.as_json:
        rows = [as_dict(each) for each in found]
        print_json({"namespace": session.settings.namespace, "now_ms": now, "batches": rows, "more": more})
    elif found:
        print_table(HEADERS, [_row(each, now) for each in found], optional=("AGE", "CANCELLED"))
        if more:
            click.echo("There are more: use --limit.")
    else:
        click.echo(f"No batches{' with failures' if failed else ''} in {session.where}.")


def _read(session: Session, limit: int, *, failed: bool) -> tuple[list[BatchRecord], bool]:
    found: list[BatchRecord] = []
    cursor: str | None = ""
    while cursor is not None and len(found) <= limit:
        page = session.run(session.ledger.batches(cursor))
        found += [each for each in page.batches if not each.parent and (not failed or each.dead + each.cancelled)]
        cursor = page.cursor
    return found[:limit], len(found) > limit


def _row(batch: BatchRecord, now_ms: int) -> tuple[str, ...]:
    return (
        batch.id,
        one_line(batch.name, 40),
        state_in_words(batch),
        f"{batch.tasks_done:,} of {batch.tasks:,}",
        f"{batch.tasks_dead:,}" if batch.tasks_dead else "",
        f"{batch.tasks_cancelled:,}" if batch.tasks_cancelled else "",
        span(max(0, now_ms - batch.created_ms)),
    )


def state_in_words(batch: BatchRecord) -> str:
    if batch.stopped:
        return "cancelled" if batch.state is BatchState.ENDED else "cancelling"
    if batch.state is BatchState.ENDED:
        return "done" if batch.succeeded else "abandoned" if batch.abandoned else "failed"
    return "open" if batch.state is BatchState.OPEN else "running"


def as_dict(batch: BatchRecord) -> dict[str, Any]:
    return {
        "id": batch.id,
        "name": batch.name,
        "state": state_in_words(batch),
        "tasks": {
            "total": batch.tasks,
            "done": batch.tasks_done,
            "failed": batch.tasks_dead,
            "cancelled": batch.tasks_cancelled,
        },
        "members": {"total": batch.size, "done": batch.done, "failed": batch.dead, "cancelled": batch.cancelled},
        "first_failed": batch.failed or None,
        "callbacks": dict(batch.callbacks),
        "parent": batch.parent.partition(" ")[0] or None,
        "created_ms": batch.created_ms,
        "ended_ms": batch.ended_ms or None,
    }


@batches.command()
@click.argument("batch_id", metavar="ID")
@with_session
@routed(to_batch())
def show(session: Session, batch_id: str) -> None:
    """Show one workflow: progress, callbacks, and members that failed or have not ended.

    ID may be the beginning of an id, as long as only one workflow has it.
    """
    batch = session.run(session.ledger.batch(full_batch_id(session, batch_id)))
    failed = session.run(session.ledger.members(batch.id, Stage.DEAD, most=MOST_SHOWN))
    live = session.run(session.ledger.members(batch.id, Stage.LIVE, most=MOST_SHOWN))
    if session.as_json:
        print_json(as_dict(batch) | {"failed": _ids(failed), "live": _ids(live)})
        return
    now = session.run(session.ledger.stats("")).now_ms
    click.echo(batch.name or "batch")
    for label, text in _facts(batch, now):
        click.echo(f"  {label:<11}  {text}")
    for label, members, all_of_them in (("failed", failed, batch.dead), ("not ended", live, batch.left)):
        for member in members:
            kind = "batch" if member.inner else "task"
            click.echo(f"  {label:<11}  {kind} {member.id} (member {member.place + 1:,})")
        if all_of_them > len(members):
            click.echo(f"  {label:<11}  and {all_of_them - len(members):,} more")
    if batch.failed and not batch.succeeded:
        print_sentences([f"The first failure was task {batch.failed}.", f"Details: rl why {batch.failed}"])


def _facts(batch: BatchRecord, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "id", batch.id
    yield "state", state_in_words(batch)
    yield "pushed", when(batch.created_ms, now_ms)
    if batch.ended_ms:
        yield "ended", when(batch.ended_ms, now_ms)
    counts = f"{batch.tasks_dead:,} failed, {batch.tasks_cancelled:,} cancelled"
    yield "tasks", f"{batch.tasks_done:,} of {batch.tasks:,} done, {counts}"
    yield "members", f"{batch.size - batch.left:,} of {batch.size:,} ended"
    for name, task_id in batch.callbacks.items():
        yield name, f"task {task_id}"


def _ids(members: tuple[BatchMember, ...]) -> list[dict[str, Any]]:
    return [{"id": each.id, "place": each.place, "batch": each.inner} for each in members]


@batches.command()
@click.argument("batch_id", metavar="ID")
@DRY_RUN
@with_session
@routed(to_batch())
def cancel(session: Session, batch_id: str, dry_run: bool) -> None:
    """Cancel a whole workflow: waiting tasks end, and running ones are asked to stop.

    No further task is queued, except on_complete, which runs once all members have ended. ID may be the beginning of an
    id, as long as only one workflow has it.
    """
    batch_id = full_batch_id(session, batch_id)
    batch = session.run(session.ledger.batch(batch_id))
    passes = 0 if dry_run else cancel_members(session, batch_id)
    after = batch if dry_run else session.run(session.ledger.batch(batch_id))
    ended = batch.state is BatchState.ENDED
    if session.as_json:
        print_json(as_dict(after) | {"changed": not ended and not dry_run, "dry_run": dry_run, "passes": passes})
    elif ended:
        click.echo(f"Batch {batch_id} had already ended: {state_in_words(batch)}.")
    elif dry_run:
        click.echo(f"Would cancel batch {batch_id}: {plural(batch.left, 'member has', 'members have')} not ended.")
    else:
        waits = f" {plural(after.left, 'member is', 'members are')} still running." if after.left else ""
        click.echo(f"Cancelled batch {batch_id}.{waits}")


def cancel_members(session: Session, batch_id: str) -> int:
    """Cancel a batch, its members and inner batches, pass by pass. Return how many passes that took."""
    left, passes = [batch_id], 0
    while left:
        current, cursor, more = left.pop(), "", True
        while more:
            answer = session.run(session.ledger.cancel_batch(current, cursor))
            if answer.verdict == "missing" and current == batch_id:
                raise BatchNotFoundError(f"there is no batch {batch_id}: its retention is over; check the id")
            passes += 1
            left += answer.inner
            cursor = answer.cursor
            more = bool(cursor)
    return passes
