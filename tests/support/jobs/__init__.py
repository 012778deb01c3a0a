"""Modules of tasks, as applications have them: workers that tests start import them by name."""
