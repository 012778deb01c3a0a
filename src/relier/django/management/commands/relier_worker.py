"""`python manage.py relier_worker [MODULE …]`: `rl worker` for the tasks of this project."""

from __future__ import annotations

from relier.cli.commands.worker import worker
from relier.django.management.click_command import ClickCommand


class Command(ClickCommand):
    help = "Run the tasks of the installed apps, or of the given modules. Takes the options of `rl worker`."
    command = worker
