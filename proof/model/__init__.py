"""The ledger in plain Python: every move, without a server."""
