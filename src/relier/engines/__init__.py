"""Contain the engines that run attempts: `native` is Relier's own. Every engine uses `run` and the same ledger."""
