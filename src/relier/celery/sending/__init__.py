"""Send tasks of an adopted app to the ledger instead of the broker."""
