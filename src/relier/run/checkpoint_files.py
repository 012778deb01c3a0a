"""Store large checkpoints as files, in a folder or anywhere fsspec reaches. Both write a file atomically.

Each namespace has its own folder below RELIER_CHECKPOINT_DIR, and each store has one inside that. Stores that use
the same namespace (staging and production) are distinguished by their birth marks. A file is named by mark, task, fence
and number: `<mark>/<task>-<fence>-<number>.checkpoint`. Earlier releases wrote files without the mark's folder. Such
files are still read. They are removed only if a record of this store shows that this store wrote them.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from relier.errors import CheckpointStoreError, ConfigurationError
from relier.settings import Settings
from relier.store.connect.address import redact
from relier.version import how_to_install

SUFFIX = ".checkpoint"
UNFINISHED = ".unfinished-"
LONGEST_NAME = 200
NAMED = re.compile(rf"(.+)-(\d+)-(\d+){re.escape(SUFFIX)}")


class Folder(Protocol):
    def write(self, name: str, data: bytes) -> None: ...
    def read(self, name: str) -> bytes: ...
    def remove(self, name: str) -> None: ...
    def older_than(self, seconds: float, below: str = "") -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Named:
    """Identify the checkpoint in a file. `born`: the birth mark of its store, empty if an earlier release wrote it."""

    task_id: str
    fence: str
    seq: int
    born: str = ""

    @property
    def file(self) -> str:
        name = f"{quote(self.task_id, safe='')}-{self.fence}-{self.seq}{SUFFIX}"
        if len(name) > LONGEST_NAME:
            raise CheckpointStoreError(
                f"the id of task {self.task_id:.60}… is too long for the name of a file, so its checkpoints cannot be "
                f"larger than RELIER_CHECKPOINT_MAX_INLINE_BYTES; choose shorter ids, or save less"
            )
        return f"{self.born}/{name}" if self.born else name


def named(file: str) -> Named | None:
    """Parse a file's name. Return None if the file is not a checkpoint."""
    born, _, name = file.rpartition("/")
    match = NAMED.fullmatch(name)
    return Named(unquote(match[1]), match[2], int(match[3]), born) if match else None


def folder_for(settings: Settings) -> Folder | None:
    """Return the folder of this ledger's checkpoints, or None if none is set.

    Raise ConfigurationError if the setting cannot be used.
    """
    if not settings.checkpoint_dir:
        return None
    name = quote(f"{settings.key_prefix}{settings.namespace}", safe=":")
    return folder_of(settings.checkpoint_dir.rstrip("/"), name if name.strip(".") else name.replace(".", "%2E"))


@lru_cache
def folder_of(where: str, below: str) -> Folder:
    path = where.removeprefix("file://")
    return RemoteFolder(where, below) if "://" in path else LocalFolder(Path(path) / below)


class LocalFolder:
    """Store files in a folder of this machine, or in one that is mounted on all machines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, path)
            except BaseException:
                os.unlink(unfinished)
                raise
            for folder in {path.parent, self._folder}:
                _sync(folder)
        except OSError as error:
            raise _trouble("written", name, self._folder, error) from error

    def read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise _trouble("read", name, self._folder, error) from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def older_than(self, seconds: float, below: str = "") -> Iterator[str]:
        limit = time.time() - seconds
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder / below):
                with contextlib.suppress(OSError):
                    ours = entry.name.startswith(UNFINISHED) or entry.name.endswith(SUFFIX)
                    if ours and entry.stat().st_mtime < limit:
                        yield f"{below}/{entry.name}" if below else entry.name


def _sync(folder: Path) -> None:
    """Sync the folder to disk, so that the file's name survives a power cut before the ledger refers to it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RemoteFolder:
    """Store files in an object store through fsspec. Its writes are atomic by themselves."""

    def __init__(self, url: str, below: str) -> None:
        self._shown = redact(url)
        try:
            import fsspec
        except ImportError as error:
            raise ConfigurationError(
                f"RELIER_CHECKPOINT_DIR is {self._shown!r}, which needs fsspec: {how_to_install('checkpoints')}"
            ) from error
        self._fs: Any
        try:
            self._fs, self._root = fsspec.core.url_to_fs(f"{url}/{below}")
        except Exception as error:  # whatever the backend raises
            raise ConfigurationError(
                f"RELIER_CHECKPOINT_DIR is {self._shown!r}, which fsspec does not accept ({type(error).__name__}: "
                f"{error}); correct it, or install what its protocol needs"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        try:
            path = f"{self._root}/{name}"
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)
        except Exception as error:
            raise _trouble("written", name, self._shown, error) from error

    def read(self, name: str) -> bytes:
        try:
            data: bytes = self._fs.cat_file(f"{self._root}/{name}")
        except Exception as error:
            raise _trouble("read", name, self._shown, error) from error
        return data

    def remove(self, name: str) -> None:
        with contextlib.suppress(Exception):
            self._fs.rm_file(f"{self._root}/{name}")

    def older_than(self, seconds: float, below: str = "") -> Iterator[str]:
        limit = time.time() - seconds
        with contextlib.suppress(Exception):
            self._fs.invalidate_cache()
            for path in self._fs.ls(f"{self._root}/{below}" if below else self._root, detail=False):
                name = path.rpartition("/")[2]
                if name.endswith(SUFFIX) and self._fs.modified(path).timestamp() < limit:
                    yield f"{below}/{name}" if below else name


def _trouble(what: str, name: str, where: object, error: Exception) -> CheckpointStoreError:
    return CheckpointStoreError(
        f"the checkpoint file {name} cannot be {what} in {where} ({type(error).__name__}: {error}); see that "
        f"RELIER_CHECKPOINT_DIR is there, has room, and may be written by this worker"
    )
