"""Tests of the Celery engine's own parts, and of behaviour that only a Celery worker has. For the rest, see
conformance/."""
