"""What a worker shows its pool processes, in memory they share: whose lease is trusted until when, and what a process
is to do with what it runs.

A signal says only "look at the board": by the time it arrives the process may run something else, so an order names the
attempt it is for.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b

WARN, STOP = 1, 2  # orders: call the soft-timeout hook; end

_LEASE = struct.Struct("=16sd")
_ORDER = struct.Struct("=16sB")
_ORDERS = 4096  # two processes that share a place: an order may be lost, and who does not obey is killed
Key = tuple[str, str]


def _mark(*names: str) -> bytes:
    return blake2b("\n".join(names).encode(), digest_size=16).digest()


class SharedOrders:
    """Opened before the pool forks; read by its processes, written by the worker alone."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self.opened_by = 0  # the worker's main process

    def open(self) -> None:
        self.opened_by = os.getpid()
        if self._memory is None:
            self._memory = mmap.mmap(-1, _LEASE.size + _ORDERS * _ORDER.size)

    def show(self, boot: str, trusted_until: float) -> None:
        if self._memory is not None:
            _LEASE.pack_into(self._memory, 0, _mark(boot), trusted_until)

    def trusted_until(self, boot: str) -> float:
        """By the monotonic clock, which all processes of a machine share. 0 where the worker is no longer that boot."""
        if self._memory is None:
            return 0.0
        mark, until = _LEASE.unpack_from(self._memory, 0)
        return float(until) if mark == _mark(boot) else 0.0

    def is_lost(self, boot: str) -> bool:
        """Whether the worker was declared lost and goes on as another boot."""
        return self._memory is not None and _LEASE.unpack_from(self._memory, 0)[0] != _mark(boot)

    def order(self, pid: int, attempt: Key, what: int) -> None:
        """For that attempt, in that process; what was ordered for it before still holds."""
        if self._memory is not None:
            _ORDER.pack_into(self._memory, self._place(pid), _mark(*attempt), what | self.orders_for(pid, attempt))

    def orders_for(self, pid: int, attempt: Key) -> int:
        if self._memory is None:
            return 0
        mark, what = _ORDER.unpack_from(self._memory, self._place(pid))
        return int(what) if mark == _mark(*attempt) else 0

    @staticmethod
    def _place(pid: int) -> int:
        return _LEASE.size + pid % _ORDERS * _ORDER.size


board = SharedOrders()
