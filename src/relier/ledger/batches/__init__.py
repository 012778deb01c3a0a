"""Batches: their records and replies, and how members are encoded for the store."""
