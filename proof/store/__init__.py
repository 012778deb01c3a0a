"""Schedules and seeded bugs of the store layer, on virtual time."""
