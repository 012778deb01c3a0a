"""Save a task's progress with `ctx.set_partial(value)`. The next attempt reads it as `ctx.partial_result`.

The ledger accepts a checkpoint only from the attempt with the current fence.

A checkpoint is compressed. If the compressed value has at most RELIER_CHECKPOINT_MAX_INLINE_BYTES, it is stored
alongside the task's record. A larger value goes to a file in RELIER_CHECKPOINT_DIR (a folder that all workers share, or
any fsspec URL such as s3://…), and the ledger keeps the file's name and digest. The path of a file consists of the
store's birth mark, the task's id, the fence and the number of the checkpoint. Files are written atomically. A file is
kept until the record that names the file is gone, because a replay resumes from the checkpoint.

The first byte of a checkpoint says how the rest is stored: `j` as JSON, `z` as compressed JSON, `f` in a file, whose
name and digest follow. The content of that file begins with `j` or `z`. If the namespace has encryption keys, the `j`
and `z` forms are encrypted (keyring.py). The name of a file is never encrypted, so that cleaning up needs no keys.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from relier import codec
from relier.codec.keyring import NO_KEYS, Keyring
from relier.errors import CheckpointStoreError, CheckpointTooLargeError
from relier.run.checkpoint_files import Folder, Named, folder_for
from relier.settings import Settings

SMALL = 1024  # not worth compressing


class Reference(msgspec.Struct, frozen=True):
    """Refer to a checkpoint that is stored as a file."""

    name: str
    sha256: str


class Checkpoints:
    """Encode and decode the checkpoints of one attempt. Several threads may use it at once."""

    def __init__(
        self,
        settings: Settings,
        task_id: str,
        fence: str,
        keyring: Keyring = NO_KEYS,
        current: bytes | None = None,
        born: Callable[[], str] = lambda: "",
    ) -> None:
        self.current = current  # the checkpoint that the ledger has
        self._keyring = keyring
        self._settings = settings
        self._most = min(settings.checkpoint_max_inline_bytes, settings.max_payload_bytes)
        self._task_id = task_id
        self._fence = fence
        self._born = born  # returns the store's birth mark; may have to ask the store
        self._lock = threading.Lock()
        self._seq = 0
        self._newest = 0  # the highest number that the ledger has
        self._file = ""  # the file of that checkpoint, if it has one

    @property
    def folder(self) -> Folder | None:
        return folder_for(self._settings)

    def dump(self, value: Any) -> tuple[int, bytes]:
        """Return the next number and the bytes to store alongside the record. Write a file if the value is large."""
        raw = codec.encode(value, "the checkpoint")
        packed = b"j" + raw
        if len(raw) > SMALL:
            smaller = zlib.compress(raw, 6)
            packed = b"z" + smaller if len(smaller) < len(raw) else packed
        packed = self._keyring.wrap(packed, self._task_id, "checkpoint")
        with self._lock:
            self._seq += 1
            seq = self._seq
        if len(packed) <= self._most:
            return seq, packed
        folder = self.folder
        if folder is None:
            raise CheckpointTooLargeError(
                f"the checkpoint is {len(packed):,} bytes compressed, the limit is {self._most:,} "
                f"(RELIER_CHECKPOINT_MAX_INLINE_BYTES); save less, or set RELIER_CHECKPOINT_DIR to a shared folder"
            )
        name = Named(self._task_id, self._fence, seq, self._born()).file
        folder.write(name, packed)
        reference = Reference(name, hashlib.sha256(packed).hexdigest())
        return seq, b"f" + msgspec.json.encode(reference)

    def kept(self, seq: int, kept: bytes) -> None:
        """Note that the ledger has stored a checkpoint, and remove the file of the one it replaces.

        Of two checkpoints saved at the same time, the one with the higher number wins.
        """
        with self._lock:
            useless = file_in(kept)
            if seq >= self._newest:
                useless, self._newest, self._file, self.current = self._file, seq, useless, kept
        if useless and self.folder is not None:
            self.folder.remove(useless)

    def fetch(self) -> None:
        """Read the current checkpoint's file now, so that `load` does not have to."""
        kept = self.current
        if kept is not None and kept[:1] == b"f":
            packed = self._read(_reference(kept))
            with self._lock:
                self.current = packed if self.current is kept else self.current

    def load(self) -> Any:
        """Return the value of the current checkpoint, or None if there is none."""
        packed = self.current
        if not packed:
            return None
        if packed[:1] == b"f":
            packed = self._read(_reference(packed))
        packed = self._keyring.unwrap(packed, self._task_id, "checkpoint")
        try:
            return codec.decode(zlib.decompress(packed[1:]) if packed[:1] == b"z" else packed[1:], "the checkpoint")
        except zlib.error as error:
            raise _unreadable(error) from error

    def _read(self, reference: Reference) -> bytes:
        folder = self.folder
        if folder is None:
            raise CheckpointStoreError(
                f"the checkpoint is the file {reference.name}, but RELIER_CHECKPOINT_DIR is not set on this "
                "worker; set it to the folder that the other workers use"
            )
        packed = folder.read(reference.name)
        if hashlib.sha256(packed).hexdigest() != reference.sha256:
            raise CheckpointStoreError(
                f"the checkpoint file {reference.name} was changed or damaged after it was written (its SHA-256 "
                f"differs); restore the file, or replay the task without it: `rl dlq replay ID --fresh`"
            )
        return packed


def _reference(kept: bytes) -> Reference:
    try:
        return msgspec.json.decode(kept[1:], type=Reference)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> CheckpointStoreError:
    return CheckpointStoreError(f"the checkpoint cannot be read: {error}; another program wrote it")


def file_in(kept: bytes | None) -> str:
    """Return the name of the file that a stored checkpoint refers to, or "" if it has no file."""
    return _reference(kept).name if kept and kept[:1] == b"f" else ""
