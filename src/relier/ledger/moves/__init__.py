"""The moves of the ledger, grouped by caller. `Ledger` combines them."""
