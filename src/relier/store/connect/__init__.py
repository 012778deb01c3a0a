"""Hold what happens before the first request on a connection. No call passes through here once it has a connection.

address.py      parses RELIER_REDIS_URL into addresses and TLS options
resolvers.py    finds the master: a fixed address, Sentinel, Cluster or the embedded server
handshake.py    opens a connection and sends AUTH, SELECT and ROLE
probe.py        finds out what a server can do, and refuses one that would lose tasks
embedded.py     starts the project's own Valkey; keeper.py is the process that stops it after its last client
"""
