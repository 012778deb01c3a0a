"""The harness of tests/conformance.

engine.py    the contract of an engine: start a worker process, and stop, interrupt, kill or freeze it
stage.py     one namespace with its client and its workers
signals.py   communication between a test and its tasks: notes in a folder, so that no test sleeps
tasks.py     the tasks; more_tasks.py: another module with tasks of the same names
"""
