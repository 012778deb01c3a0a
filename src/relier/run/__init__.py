"""3 work: one attempt from claim to settling, whatever engine drives it.

context.py   what a task may know of itself
attempt.py   a claimed task made ready to run, or the reason why it cannot
outcome.py   what came of it, and the one move that tells the ledger
"""
