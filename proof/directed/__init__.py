"""Simulated runs written by hand ("schedules"), for cases that random runs rarely reach."""
