"""The store: one server that keeps the ledger, reached in one way.

A ledger move is a `Call`: the name of a script, its arguments and a parser. It knows nothing of sockets. Two stores
execute calls: `AsyncStore` for event loops and `SyncStore` for threads. Both promise the same:

- an answer or an error within the deadline, always (`RedisConnectionError`);
- a call that got no answer is sent again, which is right only because every script is safe to repeat;
- calls of one tick of the loop travel together, and a call above durability `memory` travels on one connection with
  the WAIT that confirms it.
"""

from relier.store.async_store import AsyncStore
from relier.store.call import Call, Durability
from relier.store.probe import Capabilities
from relier.store.scripts import Scripts
from relier.store.sync_store import SyncStore

__all__ = ["AsyncStore", "Call", "Capabilities", "Durability", "Scripts", "SyncStore"]
