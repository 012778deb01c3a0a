"""Pytest fixtures for the outbox of an application. They need neither a relay nor a store.

plugin.py    the fixtures, which pytest finds by itself; it imports nothing until a fixture is used
outbox.py    reads the rows of an outbox as calls, and runs them
"""
