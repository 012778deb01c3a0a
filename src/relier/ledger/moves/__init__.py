"""The moves of the ledger, grouped by who makes them. `Ledger` is all of them."""
