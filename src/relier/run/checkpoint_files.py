"""Where large checkpoints are: a folder, or any place fsspec reaches. Both write a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from relier.errors import CheckpointStoreError, ConfigurationError

SUFFIX = ".checkpoint"


class Folder(Protocol):
    def write(self, name: str, data: bytes) -> None: ...
    def read(self, name: str) -> bytes: ...
    def remove(self, name: str) -> None: ...
    def older_than(self, seconds: float) -> Iterator[str]: ...


@lru_cache
def folder_of(where: str) -> Folder:
    return RemoteFolder(where) if "://" in where else LocalFolder(Path(where))


def task_of(name: str) -> str:
    """The task a checkpoint file belongs to."""
    return name.removesuffix(SUFFIX).rsplit("-", 2)[0]


class LocalFolder:
    """A folder of this machine, or one that is mounted on all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, data: bytes) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, unfinished = tempfile.mkstemp(dir=self._folder, prefix=".unfinished-")
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, self._folder / name)
            except BaseException:
                os.unlink(unfinished)
                raise
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

    def older_than(self, seconds: float) -> Iterator[str]:
        limit = time.time() - seconds
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                with contextlib.suppress(OSError):
                    if entry.name.endswith(SUFFIX) and entry.stat().st_mtime < limit:
                        yield entry.name


class RemoteFolder:
    """An object store by fsspec, whose writes are whole or not at all by themselves."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise ConfigurationError(
                f"RELIER_CHECKPOINT_DIR is {url!r}, which needs fsspec: pip install relier[checkpoints]"
            ) from error
        self._url = url.rstrip("/")
        self._fs: Any
        self._fs, self._root = fsspec.core.url_to_fs(self._url)

    def write(self, name: str, data: bytes) -> None:
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(f"{self._root}/{name}", data)
        except Exception as error:  # whatever the backend raises
            raise _trouble("written", name, self._url, error) from error

    def read(self, name: str) -> bytes:
        try:
            data: bytes = self._fs.cat_file(f"{self._root}/{name}")
        except Exception as error:
            raise _trouble("read", name, self._url, error) from error
        return data

    def remove(self, name: str) -> None:
        with contextlib.suppress(Exception):
            self._fs.rm_file(f"{self._root}/{name}")

    def older_than(self, seconds: float) -> Iterator[str]:
        limit = time.time() - seconds
        with contextlib.suppress(Exception):
            for path in self._fs.ls(self._root, detail=False):
                name = path.rpartition("/")[2]
                if name.endswith(SUFFIX) and self._fs.modified(path).timestamp() < limit:
                    yield name


def _trouble(what: str, name: str, where: object, error: Exception) -> CheckpointStoreError:
    return CheckpointStoreError(
        f"the checkpoint file {name} cannot be {what} in {where} ({type(error).__name__}: {error}); see that "
        f"RELIER_CHECKPOINT_DIR is there, has room, and may be written by this worker"
    )
