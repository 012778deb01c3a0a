"""Keep backup files: their names, their checksums, how many are kept, and the copy in an object store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relier.errors import BackupError, RestoreRefusedError
from relier.store.connect.address import redact
from relier.version import how_to_install

NAME = re.compile(r"relier-redis-\d{8}T\d{6}Z\.rdb\.gz")
CHECKSUM = ".sha256"
PART = ".part"  # of a file that is not complete
CHUNK = 1 << 20


def name_at(now: datetime) -> str:
    """Return the name of a backup. Names sort by time."""
    return f"relier-redis-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.rdb.gz"


def backups_in(folder: Path) -> list[Path]:
    """Return the complete backups in a folder, the oldest first."""
    return sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))


def prune(folder: Path, keep: int, new: Path) -> list[Path]:
    """Remove all but the newest `keep` backups, with their checksums. Return the removed ones. 0 keeps all.

    The `new` one is never removed, even if a clock that was wrong gave the others later names.
    """
    old = [path for path in backups_in(folder)[:-keep] if path != new] if keep else []
    for path in old:
        path.unlink(missing_ok=True)
        checksum_file(path).unlink(missing_ok=True)
    return old


def checksum_file(backup: Path) -> Path:
    return backup.with_name(backup.name + CHECKSUM)


def checksum_line(digest: str, name: str) -> str:
    """Return the content of a checksum file, as `sha256sum --check` reads it."""
    return f"{digest}  {name}\n"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_checksum(backup: Path) -> bool:
    """Return whether the backup matches its checksum file, False if it has none. Raise RestoreRefusedError if not."""
    try:
        expected = checksum_file(backup).read_text(encoding="ascii").split()[0]
    except FileNotFoundError:
        return False
    except (OSError, ValueError, IndexError) as error:
        raise RestoreRefusedError(
            f"the checksum file {checksum_file(backup)} cannot be read: {error}; copy it again, or remove it to rely "
            f"on the checksum inside the snapshot"
        ) from error
    found = sha256_of(backup)
    if found != expected:
        raise RestoreRefusedError(
            f"{backup} is damaged: its SHA-256 is {found[:12]}…, but {checksum_file(backup).name} says "
            f"{expected[:12]}…; copy the backup again, or take an older one"
        )
    return True


# --- object stores -----------------------------------------------------------------------------------------------


def bucket_url(named: str) -> str:
    """Return the fsspec URL of a bucket: a bare name is one of S3."""
    return (named if "://" in named else f"s3://{named}").rstrip("/")


def is_remote(place: str) -> bool:
    return "://" in place


def upload(files: Iterator[Path], bucket: str) -> str:
    """Copy files to a bucket, and return its URL. Nothing is ever deleted there: its lifecycle rules do that."""
    url = bucket_url(bucket)
    fs, root = _file_system(url)
    try:
        fs.makedirs(root, exist_ok=True)
        for file in files:
            fs.put_file(str(file), f"{root}/{file.name}")
    except Exception as error:  # whatever the backend raises
        raise BackupError(
            f"the backup was made, but not copied to {redact(url)} ({type(error).__name__}: {error}); check "
            f"BACKUP_S3_BUCKET, its credentials and its rights; the next backup tries again"
        ) from error
    return redact(url)


def download(url: str, folder: Path) -> Path:
    """Copy a backup, and its checksum if there is one, from an object store to a folder."""
    fs, path = _file_system(url)
    here = folder / Path(path).name
    try:
        fs.get_file(path, str(here))
        if fs.exists(path + CHECKSUM):
            fs.get_file(path + CHECKSUM, str(checksum_file(here)))
    except Exception as error:
        raise RestoreRefusedError(
            f"{redact(url)} cannot be read ({type(error).__name__}: {error}); check the name, the credentials and "
            f"the rights"
        ) from error
    return here


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise BackupError(f"{redact(url)} needs {error.name or 'fsspec'}: {how_to_install('checkpoints')}") from error
    except Exception as error:
        raise BackupError(
            f"{redact(url)} cannot be used ({type(error).__name__}: {error}); correct it, or install what its "
            f"protocol needs"
        ) from error
    return fs, path
