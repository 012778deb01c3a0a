"""Schedules: run tasks at given times. Any worker may fire a schedule, and each occurrence fires once.

A schedule is a record in the ledger with a version and its next intended time. Every worker's sweep, and `rl
scheduler`, finds the schedules that are due by the store's TIME (lua/promote.lua). The sweeper computes which
occurrences run and when the next one is due (planning.py), then calls `fire` (lua/fire.lua). The script succeeds only
if the version and the intended time are still the stored ones. So no leader is needed, the sweepers' clocks do not
matter, and nothing fires twice.

    timings.py      cron, every, at: the times of a schedule
    planning.py     the catch-up rules: which due occurrences run
    definition.py   the definition that the ledger stores, and the task of one run
    firing.py       fires due schedules
    changes.py      creates, edits, pauses and declares schedules
    declared.py     the schedules that this process's code declares
    api.py          the classes Schedules and AsyncSchedules, for applications
"""
