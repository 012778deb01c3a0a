"""How far a task got, kept under its fence: `ctx.set_partial(value)`, and `ctx.partial_result` after a revival.

A checkpoint is kept beside the record, compressed, up to RELIER_CHECKPOINT_MAX_INLINE_BYTES. A larger one goes to a
file in RELIER_CHECKPOINT_DIR (a folder all workers share, or any fsspec URL such as s3://…), and the record keeps its
name and digest. Files are named by task, fence and number, written whole or not at all, and kept until the record that
names them is gone: a replay resumes from them.

First byte: `j` JSON, `z` compressed JSON, `f` the name of a file that holds one of the other two. Where the namespace
has encryption keys, those two are wrapped by them (keyring.py); the name of a file stays plain, so that whoever tidies
up needs no keys.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import msgspec

from relier import codec
from relier.errors import CheckpointStoreError, CheckpointTooLargeError
from relier.keyring import NO_KEYS, Keyring
from relier.run.checkpoint_files import Folder, folder_of
from relier.settings import Settings

SMALL = 1024  # not worth compressing


class Reference(msgspec.Struct, frozen=True):
    """A checkpoint that is a file."""

    name: str
    sha256: str


class Checkpoints:
    """The checkpoints of one task's attempts, as bytes."""

    def __init__(self, settings: Settings, task_id: str, fence: str, keyring: Keyring = NO_KEYS) -> None:
        self._keyring = keyring
        self._most = settings.checkpoint_max_inline_bytes
        self._where = settings.checkpoint_dir
        self._task_id = task_id
        self._fence = fence
        self._seq = 0
        self._last_file = ""

    @property
    def folder(self) -> Folder | None:
        return folder_of(self._where) if self._where else None

    def dump(self, value: Any) -> tuple[int, bytes]:
        """The next number, and what to keep beside the record. Writes a file where the value is large."""
        raw = codec.encode(value, "the checkpoint")
        packed = b"j" + raw
        if len(raw) > SMALL:
            smaller = zlib.compress(raw, 6)
            packed = b"z" + smaller if len(smaller) < len(raw) else packed
        packed = self._keyring.wrap(packed, self._task_id, "checkpoint")
        self._seq += 1
        if len(packed) <= self._most:
            return self._seq, packed
        folder = self.folder
        if folder is None:
            raise CheckpointTooLargeError(
                f"the checkpoint is {len(packed):,} bytes compressed, the limit is {self._most:,} "
                f"(RELIER_CHECKPOINT_MAX_INLINE_BYTES); keep less, or set RELIER_CHECKPOINT_DIR to a shared folder"
            )
        name = f"{self._task_id}-{self._fence}-{self._seq}.checkpoint"
        folder.write(name, packed)
        reference = Reference(name, hashlib.sha256(packed).hexdigest())
        return self._seq, b"f" + msgspec.json.encode(reference)

    def superseded(self, kept: bytes) -> None:
        """The ledger has the new one: a file of this attempt that it replaces can go."""
        last, self._last_file = self._last_file, file_in(kept)
        if last and self.folder is not None:
            self.folder.remove(last)

    def load(self, kept: bytes | None) -> Any:
        """The value of a checkpoint; None where there is none."""
        if not kept:
            return None
        if kept[:1] == b"f":
            kept = self._fetch(msgspec.json.decode(kept[1:], type=Reference))
        kept = self._keyring.unwrap(kept, self._task_id, "checkpoint")
        return codec.decode(zlib.decompress(kept[1:]) if kept[:1] == b"z" else kept[1:], "the checkpoint")

    def _fetch(self, reference: Reference) -> bytes:
        folder = self.folder
        if folder is None:
            raise CheckpointStoreError(
                f"the checkpoint is the file {reference.name}, but RELIER_CHECKPOINT_DIR is not set on this worker"
            )
        packed = folder.read(reference.name)
        if hashlib.sha256(packed).hexdigest() != reference.sha256:
            raise CheckpointStoreError(
                f"the checkpoint file {reference.name} is not what was written: its digest differs"
            )
        return packed


def file_in(kept: bytes | None) -> str:
    """The name of the file a kept checkpoint stands for; empty where it is no file."""
    return msgspec.json.decode(kept[1:], type=Reference).name if kept and kept[:1] == b"f" else ""
