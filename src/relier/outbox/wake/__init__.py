"""Wake a relay when a transaction with rows commits."""
