"""rl backup: write a snapshot of the store to a file, once or at intervals."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from relier.backup.make import (
    DEFAULT_EVERY,
    DEFAULT_FOLDER,
    DEFAULT_KEEP,
    BackupMade,
    BackupOptions,
    make_backup,
)
from relier.cli.long_running import finite, start_logging_for
from relier.cli.output import print_json, span
from relier.cli.session import Session, with_session
from relier.cli.shards.routes import backup_route, routed
from relier.errors import RelierError
from relier.stop_signals import stop_signals

log = logging.getLogger("relier.backup")


def option(name: str, variable: str, **how: Any) -> Callable[..., Any]:
    """Add an option that is also a variable, with and without the prefix of our settings."""
    return click.option(name, envvar=[f"RELIER_{variable}", variable], show_envvar=True, **how)


@click.command()
@option("--to", "BACKUP_DIR", metavar="DIR", default=DEFAULT_FOLDER, show_default=True, help="Folder for the backups.")
@option(
    "--every",
    "BACKUP_INTERVAL_SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    is_flag=False,
    flag_value=DEFAULT_EVERY,
    metavar="[SECONDS]",
    help=f"Repeat until stopped by SIGTERM or SIGINT; every {DEFAULT_EVERY:.0f} s if no number is given.",
)
@option(
    "--keep",
    "BACKUP_RETENTION",
    type=click.IntRange(min=0),
    default=DEFAULT_KEEP,
    show_default=True,
    metavar="N",
    help="Number of backups to keep in the folder; 0 keeps all.",
)
@option(
    "--bucket",
    "BACKUP_S3_BUCKET",
    default="",
    metavar="NAME",
    help="Also copy each backup there: an S3 bucket, or an fsspec URL such as gs://bucket/folder.",
)
@click.option(
    "--replica/--primary",
    default=None,
    help="Which server writes the snapshot.  [default: a replica behind Sentinel, otherwise the primary]",
)
@with_session
@routed(backup_route)
def backup(session: Session, *, to: str, every: float | None, keep: int, bucket: str, replica: bool | None) -> None:
    """Write a snapshot of the store to a compressed file with a checksum.

    The server writes the snapshot (BGSAVE) and keeps serving. If this host cannot read the server's file, the command
    fetches the snapshot as a replica does. The backup is relier-redis-TIMESTAMP.rdb.gz, with its SHA-256 next to it.

    A snapshot holds all namespaces and databases of the server, and every payload: protect the files as you protect
    the store.
    """
    options = BackupOptions(Path(to), keep, bucket, replica)
    if every is None:
        report(session, make_backup(session.settings, options))
    else:
        start_logging_for(click.get_current_context())
        repeat(session, options, every)


def report(session: Session, made: BackupMade) -> None:
    if session.as_json:
        print_json(as_dict(made))
        return
    click.echo(
        f"Wrote {made.path}: {made.bytes:,} bytes, a snapshot of {made.snapshot_bytes:,} bytes from the {made.role} "
        f"{made.fetched.server}, in {span(made.seconds * 1000)}."
    )
    if made.fetched.by == "replication":
        click.echo("The server's own file cannot be read on this host, so the snapshot was fetched by replication.")
    if made.removed:
        click.echo(f"Removed old backups: {made.removed}.")
    if made.copied_to:
        click.echo(f"Copied it to {made.copied_to}.")


def as_dict(made: BackupMade) -> dict[str, Any]:
    return {
        "path": str(made.path),
        "bytes": made.bytes,
        "snapshot_bytes": made.snapshot_bytes,
        "sha256": made.sha256,
        "server": made.fetched.server,
        "role": made.role,
        "fetched_by": made.fetched.by,
        "seconds": round(made.seconds, 3),
        "removed": made.removed,
        "copied_to": made.copied_to or None,
    }


def repeat(session: Session, options: BackupOptions, every: float) -> None:
    """Make a backup now, and again every `every` seconds. A failure is logged, and the next backup runs as planned."""
    stopped = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stopped.set())
    log.info("backups started: store=%s folder=%s every=%gs", session.where, options.folder, every)
    while not stopped.is_set():
        try:
            made = make_backup(session.settings, options)
        except RelierError as error:
            log.error("backup failed: %s", error)  # noqa: TRY400 - the message says what to do
        else:
            log.info(
                "backup written: file=%s bytes=%d server=%s role=%s by=%s removed=%d copied_to=%s",
                made.path,
                made.bytes,
                made.fetched.server,
                made.role,
                made.fetched.by,
                made.removed,
                made.copied_to or "-",
            )
        stopped.wait(every)
    log.info("backups stopped")
