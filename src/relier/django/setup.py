"""Set up Django on import, for processes that import modules by name: `rl worker relier.django.setup shop.tasks`."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()
