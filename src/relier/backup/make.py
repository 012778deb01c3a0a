"""Make one backup: fetch a snapshot, compress and check it on the way, and rename it when it is complete."""

from __future__ import annotations

import gzip
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relier.backup import archive
from relier.backup.rdb import NotAnRdbError, RdbReader
from relier.backup.snapshot import Fetched, fetch_snapshot, replica_of
from relier.errors import BackupError
from relier.settings import Settings
from relier.store.connect.address import target_of
from relier.store.connect.one_server import OneServer

DEFAULT_FOLDER = "/backups"
DEFAULT_EVERY = 3600.0
DEFAULT_KEEP = 168  # a week of hourly backups


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """Where backups go, how many are kept, and which server writes them.

    `replica`: None takes a replica behind Sentinel if one is online; True insists on one; False takes the master.
    """

    folder: Path = Path(DEFAULT_FOLDER)
    keep: int = DEFAULT_KEEP
    bucket: str = ""
    replica: bool | None = None


@dataclass(frozen=True, slots=True)
class BackupMade:
    """A backup that was made."""

    path: Path
    fetched: Fetched
    role: str
    bytes: int
    snapshot_bytes: int
    sha256: str
    seconds: float
    removed: int
    copied_to: str


def make_backup(settings: Settings, options: BackupOptions) -> BackupMade:
    """Make a backup, remove the oldest ones, and copy the new one to the bucket if there is one."""
    began = time.monotonic()
    prepare(options.folder)
    with OneServer.master_of(settings) as master:
        server, role = chosen_server(master, options.replica, sentinel=target_of(settings).kind == "sentinel")
        path = options.folder / archive.name_at(datetime.now(UTC))
        fetched, size, digest = write_backup(server, path)
    removed = archive.prune(options.folder, options.keep, path)
    files = iter((archive.checksum_file(path), path))
    copied = archive.upload(files, options.bucket) if options.bucket else ""
    took = time.monotonic() - began
    return BackupMade(path, fetched, role, path.stat().st_size, size, digest, took, len(removed), copied)


def prepare(folder: Path) -> None:
    """Create the folder, and remove what a killed backup left there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"relier-redis-*{archive.PART}"):
            left.unlink()
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError("it is not writable")
    except OSError as error:
        raise BackupError(
            f"backups cannot be written to {folder}: {error}; name a writable folder with --to or RELIER_BACKUP_DIR"
        ) from error


def chosen_server(master: OneServer, replica: bool | None, *, sentinel: bool) -> tuple[OneServer, str]:
    """Return the server to back up, and its role."""
    if replica or (replica is None and sentinel):
        found = replica_of(master)
        if found is not None:
            return found, "replica"
        if replica:
            raise BackupError(
                f"no replica of {master.address} is online; start one, or back up the primary without --replica"
            )
    return master, "primary"


def write_backup(server: OneServer, path: Path) -> tuple[Fetched, int, str]:
    """Write the server's snapshot to `path`, and return how it was fetched, its size and the file's SHA-256.

    The checksum file is complete before the backup gets its name, so a named backup always has one.
    """
    part = path.with_name(path.name + archive.PART)
    reader = RdbReader()
    try:
        with os.fdopen(_private(part), "wb") as raw:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:

                def write(data: bytes) -> None:
                    reader.feed(data)
                    packed.write(data)

                fetched = fetch_snapshot(server, write)
                reader.finish()
            raw.flush()
            os.fsync(raw.fileno())
        digest = archive.sha256_of(part)
        archive.checksum_file(path).write_text(archive.checksum_line(digest, path.name), encoding="ascii")
        part.replace(path)
        sync_folder(path.parent)
    except NotAnRdbError as error:
        raise BackupError(f"{server.address} gave no usable snapshot: {error}; see its log, then try again") from error
    except OSError as error:
        raise BackupError(f"the backup {path} cannot be written: {error}; make room there, or use --to") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return fetched, reader.size, digest


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # a backup holds every payload


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
