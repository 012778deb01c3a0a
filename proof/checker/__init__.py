"""The invariants: the safety properties, checked after every call."""
