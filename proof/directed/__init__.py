"""Schedules written by hand, for corners that random schedules seldom reach."""
