"""Reads of a whole namespace that take a few round trips, however many queues, nodes and limits it has.

steps.py    how readings share round trips
stats.py    queues, nodes and counters
limits.py   limits of running tasks
"""
