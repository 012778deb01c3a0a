"""`python manage.py relier_dev [MODULE …]`: `rl dev` for the tasks of this project."""

from __future__ import annotations

from relier.cli.commands.worker import dev
from relier.django.management.click_command import ClickCommand


class Command(ClickCommand):
    help = "Run a worker for development, which restarts when a Python file changes. Takes the options of `rl dev`."
    command = dev
