"""What a worker shows its pool processes: until when its lease is trusted. One number in memory they share."""

from __future__ import annotations

import mmap
import struct

_NUMBER = struct.Struct("d")


class Board:
    """Opened before the pool forks; read by its processes, written by the worker alone."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def open(self) -> None:
        if self._memory is None:
            self._memory = mmap.mmap(-1, _NUMBER.size)

    def show(self, trusted_until: float) -> None:
        if self._memory is not None:
            _NUMBER.pack_into(self._memory, 0, trusted_until)

    def trusted_until(self) -> float:
        """By the monotonic clock, which all processes of a machine share."""
        return 0.0 if self._memory is None else float(_NUMBER.unpack_from(self._memory, 0)[0])


board = Board()
