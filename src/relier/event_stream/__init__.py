"""Follow what changes in a namespace. Readers keep their own cursor; the store does not know its readers.

Events only say when to read: the ledger is the truth. A reader that misses events gets a `Missed`, and should then read
the state again.
"""
