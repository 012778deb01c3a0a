"""Workers are killed and frozen while thousands of tasks run, and nothing is lost: `make demo`."""
