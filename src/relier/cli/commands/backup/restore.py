"""rl restore: replace the data of a stopped store with a backup."""

from __future__ import annotations

import click

from relier.backup.data_folder import data_folder
from relier.backup.restore import DUMP
from relier.backup.restore import restore as restore_backup
from relier.cli.output import print_json, print_sentences
from relier.cli.session import DRY_RUN, Session, with_session
from relier.cli.shards.routes import backup_route, routed
from relier.store.connect.address import target_of


@click.command()
@click.argument("backup")
@click.option("--data-dir", default="", metavar="DIR", help="The server's data folder: `dir` in its configuration.")
@click.option("--dbfilename", default=DUMP, show_default=True, metavar="NAME", help="Name of the server's RDB file.")
@DRY_RUN
@with_session
@routed(backup_route)
def restore(session: Session, *, backup: str, data_dir: str, dbfilename: str, dry_run: bool) -> None:
    """Replace the data of a stopped store with a backup.

    BACKUP is a file that `rl backup` or scripts/redis/backup.sh wrote, a folder of such files (the newest is used), an
    fsspec URL, or an RDB file.

    Run it on the primary's host, while workers, producers, Sentinels, replicas and the primary are stopped. The command
    stops none of them. It refuses to run while the store is in use, or if the backup is damaged. The previous data is
    moved to a folder next to it.
    """
    folder = data_folder(session.settings, data_dir)
    done = restore_backup(session.settings, backup, folder, dbfilename, dry_run=dry_run)
    if session.as_json:
        kept = str(done.kept) if done.kept else None
        print_json(
            {
                "backup": done.backup,
                "data_dir": str(folder),
                "snapshot_bytes": done.snapshot_bytes,
                "checksum_file": done.checksum,
                "kept": kept,
                "dry_run": dry_run,
            }
        )
        return
    verb = "Would restore" if dry_run else "Restored"
    click.echo(f"{verb} {done.backup} ({done.snapshot_bytes:,} bytes) in {folder}.")
    if done.kept:
        click.echo(f"The data from before is in {done.kept}; delete it when you no longer need it.")
    if not dry_run:
        print_sentences(next_steps(embedded=not data_dir and target_of(session.settings).kind == "embedded"))


def next_steps(*, embedded: bool) -> list[str]:
    if embedded:
        return ["The next process that uses the store starts its server. Tasks that were running start again."]
    return [
        "Now start the primary and check it with `rl doctor`, then the replicas, then Sentinels, then the workers.",
        "Tasks that were running when the backup was made start again once a worker or `rl resurrector` runs.",
    ]
