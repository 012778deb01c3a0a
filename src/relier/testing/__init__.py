"""What tests of an application need: pytest fixtures for its outbox. They need neither a relay nor a store.

plugin.py    the fixtures, found by pytest itself; imports nothing until one is used
outbox.py    what stands in an outbox, read as calls; calls that are run here and now
"""
