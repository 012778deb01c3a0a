"""Relier in a Celery app: `from relier.celery import install; install(app)`."""

from relier.celery.install import install

__all__ = ["install"]
