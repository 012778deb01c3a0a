"""Follow what changes in a namespace. Readers keep their own cursor; nothing in the store knows them.

Events only say when to read: the ledger is the truth. A reader that misses some gets a `Missed`, and reads the state of
what it follows again.
"""
