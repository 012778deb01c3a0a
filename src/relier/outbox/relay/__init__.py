"""The relay: it claims committed rows, publishes them, and closes them in the table."""
