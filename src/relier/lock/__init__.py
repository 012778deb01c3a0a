"""Run a block of code once per key: `idempotency_lock`.

blocks.py    the lock: claim a key, run the block, keep its result
renewal.py   renew the keys of running blocks, from event loops and from threads
"""

from relier.lock.blocks import IdempotencyLock, LockState, idempotency_lock

__all__ = ["IdempotencyLock", "LockState", "idempotency_lock"]
