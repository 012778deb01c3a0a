"""Act in the ledger for the worker processes of a supervisor."""
