"""Run claimed tasks in a Celery worker: its main thread and the thread that talks to the ledger."""
