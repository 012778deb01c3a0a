"""Replace the data of a stopped server with a backup.

The snapshot is written twice: as dump.rdb, which a server without an append-only file loads, and as a new append-only
file. A server with `appendonly yes` ignores dump.rdb: without the second copy it would start empty. Every version reads
an append-only file that begins with a snapshot; Redis 7 and later move it into their appendonlydir.

The previous data is moved to a folder next to it, where the server does not look. So a stale append-only file cannot
undo the restore, but a person can.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from relier.backup import archive
from relier.backup.data_folder import unused
from relier.backup.make import sync_folder
from relier.backup.rdb import NotAnRdbError, RdbReader
from relier.errors import RestoreRefusedError
from relier.settings import Settings
from relier.stop_signals import refuse_on_windows

DUMP = "dump.rdb"
AOF = "appendonly.aof"
MANIFEST = ".manifest"
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Restored:
    """Report the result of a restore. `kept`: the folder with the previous data, or None if there was none."""

    backup: str
    folder: Path
    snapshot_bytes: int
    checksum: bool
    kept: Path | None


def restore(settings: Settings, backup: str, folder: Path, dump: str = DUMP, *, dry_run: bool = False) -> Restored:
    """Check a backup, then replace the server's data with its data. Raise RestoreRefusedError if that is not safe."""
    refuse_on_windows("a restore")
    with ExitStack() as stack:
        path = _local_copy(backup, stack)
        with_checksum = archive.has_checksum(path)
        size = check(path, crc=not with_checksum)
        stack.enter_context(unused(settings, folder))
        refuse_if_full(folder, 2 * size)
        kept = None if dry_run else replace_data(path, folder, dump)
        return Restored(backup if archive.is_remote(backup) else str(path), folder, size, with_checksum, kept)


def _local_copy(backup: str, stack: ExitStack) -> Path:
    """Return the backup as a file of this host: the newest one of a folder, or a copy from an object store."""
    if archive.is_remote(backup):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="relier-restore-"))
        return archive.download(backup, Path(folder))
    path = Path(backup)
    if path.is_dir():
        found = archive.backups_in(path)
        if not found:
            raise RestoreRefusedError(f"there are no backups in {path}; they are named relier-redis-….rdb.gz")
        return found[-1]
    if not path.is_file():
        raise RestoreRefusedError(f"there is no backup {path}; name a file, a folder of backups, or an fsspec URL")
    return path


def check(path: Path, *, crc: bool) -> int:
    """Read a backup to its end, and return the size of its snapshot. `crc`: also verify the checksum inside."""
    reader = RdbReader(checksum=crc)
    try:
        for data in snapshot_bytes(path):
            reader.feed(data)
        reader.finish()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RestoreRefusedError(
            f"{path} is damaged or truncated: {error}; copy it again, or take an older backup"
        ) from error
    except NotAnRdbError as error:
        raise RestoreRefusedError(
            f"{path} is not a complete snapshot of Redis or Valkey: {error}; copy it again, or restore "
            f"another file named relier-redis-….rdb.gz, or an RDB file"
        ) from error
    except OSError as error:
        raise RestoreRefusedError(f"{path} cannot be read: {error}; check its rights and its disk") from error
    return reader.size


def snapshot_bytes(path: Path) -> Iterator[bytes]:
    """Yield the snapshot in a backup, which may be compressed or a plain RDB file."""
    with path.open("rb") as raw:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        file: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        while data := file.read(archive.CHUNK):
            yield data


def refuse_if_full(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RestoreRefusedError(
            f"{folder} has {free / 2**20:,.0f} MiB of free space, but the restore needs {needed / 2**20:,.0f} MiB "
            f"(the snapshot twice); make room: you may delete its folders before-restore-…"
        )


def replace_data(path: Path, folder: Path, dump: str) -> Path | None:
    """Move the server's files aside, and put the snapshot in their place. Safe to run again."""
    aof = aof_name(folder)
    kept = folder / f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    fresh = {name: folder / f"{name}.restored" for name in (dump, aof)}
    try:
        for file in fresh.values():
            write_snapshot(path, file)
        old = [folder / dump, *aof_files(folder)]
        moved = [file for file in old if file.exists()]
        if moved:
            kept.mkdir(mode=0o700)
        for file in moved:
            file.rename(kept / file.name)
        for name, file in fresh.items():
            file.rename(folder / name)
        sync_folder(folder)
    except OSError as error:
        raise RestoreRefusedError(
            f"the data in {folder} cannot be replaced: {error}; the previous data is in {folder} or {kept}; do not "
            f"start the server: correct the problem, then run the command again"
        ) from error
    finally:
        for file in fresh.values():
            with suppress(OSError):
                file.unlink(missing_ok=True)
    return kept if moved else None


def write_snapshot(path: Path, file: Path) -> None:
    """Write the snapshot to a file that belongs to the owner of its folder: the server may run as another user."""
    with file.open("wb") as out:
        for data in snapshot_bytes(path):
            out.write(data)
        out.flush()
        os.fsync(out.fileno())
    file.chmod(0o600)
    owner = file.parent.stat()
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def manifests(folder: Path) -> list[Path]:
    """Return the manifests of append-only files, which Redis 7 and later keep in a folder of their own."""
    return [path for path in folder.glob(f"*/*{MANIFEST}") if not path.parent.name.startswith("before-restore-")]


def aof_name(folder: Path) -> str:
    """Return the server's name for its append-only file (`appendfilename`), from the files that are there."""
    for manifest in manifests(folder):
        return manifest.name.removesuffix(MANIFEST)
    return next((path.name for path in sorted(folder.glob("*.aof"))), AOF)


def aof_files(folder: Path) -> list[Path]:
    """Return all append-only files and folders of such files, including those of an interrupted rewrite."""
    folders = {manifest.parent for manifest in manifests(folder)} | {folder / "appendonlydir"}
    return sorted(folders | set(folder.glob("*.aof")))
