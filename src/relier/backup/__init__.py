"""Back up the store and restore it.

rdb.py          checks that bytes are a complete snapshot
snapshot.py     lets a server write a snapshot, and fetches it
archive.py      the backup files: names, checksums, retention, the copy in an object store
make.py         one backup, from the server to the files
data_folder.py  the folder in which a server keeps its data, and who uses it
restore.py      replaces the data of a stopped server

A snapshot holds the ledger as it was at one moment. Nothing in it depends on the time at which it is read again: fences
follow the store's TIME, so they still grow, and a lease of the snapshot runs out because its worker is gone. So a
restored store needs no repair. Its sweep revives what was running, and tasks that were done stay done.

Not covered: tasks accepted after the snapshot are lost, and tasks that ended after it run again. A task that must not
have its effects twice needs the inbox or an idempotent target, as with every other repeated attempt.
"""
