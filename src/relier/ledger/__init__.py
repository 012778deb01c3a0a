"""The ledger: each task one record, each change of its state one atomic script."""
