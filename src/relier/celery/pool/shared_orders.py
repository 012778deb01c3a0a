"""Share memory between a worker and its pool processes: how long the lease is trusted, and orders to processes.

A signal only tells the process to read its orders. By the time the signal arrives, the process may run another attempt,
so each order names its attempt.
"""

from __future__ import annotations

import mmap
import os
import struct
from hashlib import blake2b

WARN, STOP = 1, 2  # orders: call the soft-timeout hook; end

_LEASE = struct.Struct("=16sd")
_ORDER = struct.Struct("=16sB")
_ORDERS = 4096  # if two processes share a slot, an order may be lost; a process that does not obey is killed
Key = tuple[str, str]


def _mark(*names: str) -> bytes:
    return blake2b("\n".join(names).encode(), digest_size=16).digest()


class SharedOrders:
    """Hold the shared memory. The worker opens it before the pool forks. Only the worker writes to it."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self.opened_by = 0  # the worker's main process

    def open(self) -> None:
        self.opened_by = os.getpid()
        if self._memory is None:
            self._memory = mmap.mmap(-1, _LEASE.size + _ORDERS * _ORDER.size)

    def share_lease(self, worker_id: str, trusted_until: float) -> None:
        """Write how long the lease of this worker id is trusted (monotonic)."""
        if self._memory is not None:
            _LEASE.pack_into(self._memory, 0, _mark(worker_id), trusted_until)

    def trusted_until(self, worker_id: str) -> float:
        """Return how long the lease is trusted (monotonic), or 0 if the worker has a different id now."""
        if self._memory is None:
            return 0.0
        mark, until = _LEASE.unpack_from(self._memory, 0)
        return float(until) if mark == _mark(worker_id) else 0.0

    def is_lost(self, worker_id: str) -> bool:
        """Return whether the worker was declared lost and continues under a new id."""
        return self._memory is not None and _LEASE.unpack_from(self._memory, 0)[0] != _mark(worker_id)

    def order(self, pid: int, attempt: Key, what: int) -> None:
        """Give an order to that attempt in that process. Earlier orders for the attempt still apply."""
        if self._memory is not None:
            _ORDER.pack_into(self._memory, self._slot(pid), _mark(*attempt), what | self.orders_for(pid, attempt))

    def orders_for(self, pid: int, attempt: Key) -> int:
        """Return the orders for that attempt in that process."""
        if self._memory is None:
            return 0
        mark, what = _ORDER.unpack_from(self._memory, self._slot(pid))
        return int(what) if mark == _mark(*attempt) else 0

    @staticmethod
    def _slot(pid: int) -> int:
        return _LEASE.size + pid % _ORDERS * _ORDER.size


shared_orders = SharedOrders()
