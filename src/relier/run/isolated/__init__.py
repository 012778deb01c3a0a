"""Run attempts in separate processes."""
