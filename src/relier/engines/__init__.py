"""Run attempts in a worker. Relier's own worker is here; the Celery engine uses most of its parts."""
