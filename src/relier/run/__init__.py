"""Run one attempt from claim to settling, whichever engine drives it.

attempt.py   prepares a claimed task to run, or says why it cannot
execute.py   runs the task's function to its outcome
context.py   gives the running task access to its attempt
outcome.py   lists the outcomes, and the one move that reports each to the ledger
"""
