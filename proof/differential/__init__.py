"""The same calls on the model and on the real scripts: equal replies, equal keyspace."""
