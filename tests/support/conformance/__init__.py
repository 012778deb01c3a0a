"""The harness of tests/conformance.

engine.py    what an engine must let a test do: start a worker process, stop, interrupt, kill, freeze it
stage.py     one namespace with its client and its workers: what a test holds in its hands
signals.py   how a test and the tasks it pushed talk: notes in a folder, so that nobody sleeps
tasks.py     the tasks; more_tasks.py: another module with tasks of the same names
"""
