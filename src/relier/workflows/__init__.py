"""Workflows: chains, groups and batches of tasks, durable in the ledger."""
