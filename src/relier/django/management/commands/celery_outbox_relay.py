"""`relier_relay` under the name it has in projects that come from a Celery outbox."""

from __future__ import annotations

from relier.django.management.commands.relier_relay import Command as RelayCommand


class Command(RelayCommand):
    help = "Send the tasks that were committed to the outbox: the same as relier_relay."
