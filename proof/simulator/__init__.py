"""Producers, workers, sweepers and operators around the model, run by a seeded scheduler. In the proof, a "schedule" is
one such simulated run; schedules of users are called timetables.
"""
