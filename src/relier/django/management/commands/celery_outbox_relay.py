"""`relier_relay` under its name in projects that migrate from a Celery outbox."""

from __future__ import annotations

from relier.django.management.commands.relier_relay import Command as RelayCommand


class Command(RelayCommand):
    help = "Send the tasks that were committed to the outbox. Same as relier_relay."
