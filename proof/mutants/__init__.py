"""Seeded bugs in the model and its workers, each of which some check must catch."""
