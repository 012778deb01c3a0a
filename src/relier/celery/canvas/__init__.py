"""Join groups and chords in the ledger."""
