"""The behaviours every engine owes its users, written once and run over each engine in `ENGINES`.

A behaviour knows the public API, the ledger and processes; nothing of what is inside an engine.
"""
