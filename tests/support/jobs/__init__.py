"""Modules of tasks, as applications have them. Workers that tests start import them by name."""
