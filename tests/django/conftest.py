from __future__ import annotations

from tests.support import django_shop  # first: models need settings
from tests.support.outbox_shop import client

__all__ = ["client", "django_shop"]  # client is a fixture
