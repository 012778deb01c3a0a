"""Run attempts inside the processes and threads of Celery's pool."""
