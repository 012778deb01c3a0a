"""The outbox table: its name, and every statement on it."""
