"""Tasks and dead letters in Django's admin. The data comes from the ledger, not from a table.

reading.py   reads records from the ledger          admin.py   the pages, permissions, and the actions on dead letters
"""
