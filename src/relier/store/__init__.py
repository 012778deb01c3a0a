"""Reach the store: the one server that keeps the ledger.

A ledger move is a `Call`: the name of a script, its arguments and a parser. A call knows nothing of sockets. Two stores
execute calls: `AsyncStore` for event loops and `SyncStore` for threads. Both promise the same:

- every call gets an answer, or an error such as `RedisConnectionError`, within the deadline;
- a call that got no answer is sent again, which is correct only because every script is safe to repeat;
- a call above durability `memory` is sent on the same connection as the WAIT that confirms it.

`AsyncStore` also sends the calls of one turn of the loop together.
"""

from relier.store.async_store import AsyncStore
from relier.store.call import Call, Durability
from relier.store.connect.probe import Capabilities
from relier.store.scripts import Scripts
from relier.store.sync_store import SyncStore

__all__ = ["AsyncStore", "Call", "Capabilities", "Durability", "Scripts", "SyncStore"]
