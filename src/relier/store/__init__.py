"""Reach the store: the one server that keeps the ledger.

A ledger move is a `Call`: the name of a script, its arguments and a parser. A call knows nothing of sockets. Two stores
execute calls: `AsyncStore` for event loops and `SyncStore` for threads. Both promise the same:

- every call gets an answer, or an error such as `RedisConnectionError`, within the deadline;
- a call that got no answer is sent again, which is correct only because every script is safe to repeat;
- a call above durability `memory` is sent on the same connection as the WAIT that confirms it.

`AsyncStore` also sends the calls of one turn of the loop together.

The path of a call, in reading order:

    call.py                          the call: script, key, arguments, parser
    sync_store.py, async_store.py    take it from a thread or an event loop
    batch.py                         packs it into a pipeline, and sorts the replies
    core.py                          attempts, retries, circuit breaker, durability
    pool.py                          finds an idle connection
    wire.py                          the contract of the two wires
    sync_wire.py, async_wire.py      send the bytes and read the replies

    policy.py         deadlines, pauses and the circuit breaker, without IO
    replies.py        what every error reply means
    scripts.py        the Lua scripts and their SHA1
    master_lookup.py  the master's address, as far as known

`connect/` prepares a connection for its first request: URL, TLS, Sentinel, Cluster, handshake, probe,
embedded server. So are the settings of a store that only sends heartbeats.
"""

from relier.store.async_store import AsyncStore
from relier.store.call import Call, Durability
from relier.store.connect.probe import Capabilities
from relier.store.scripts import Scripts
from relier.store.sync_store import SyncStore

__all__ = ["AsyncStore", "Call", "Capabilities", "Durability", "Scripts", "SyncStore"]
