"""Run tasks of the ledger in a Celery worker.

- bootsteps.py   starts and stops the ledger thread with Celery's worker, and passes its jobs to Celery's main thread
- runner.py      runs attempts as jobs of Celery's pool, for the worker in the ledger thread
- jobs.py        passes attempts between the ledger thread and Celery's main thread
- strategy.py    handles the messages of a task: jobs of the ledger, and messages from the broker
- request.py     carries one attempt as a Celery request into the pool, and back as an outcome
- report.py      encodes what a pool process reports about an attempt
- children.py    watches the pool's processes
- broker.py      cuts broker connections in which Celery's main thread hangs
- events.py      sends events in a separate thread
- unreadable.py  buries messages that can never be accepted
"""
