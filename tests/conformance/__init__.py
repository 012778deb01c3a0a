"""The behaviours that every engine must have, written once and run on each engine in `ENGINES`.

A test of a behaviour uses the public API, the ledger and processes, but nothing that is internal to an engine.
"""
