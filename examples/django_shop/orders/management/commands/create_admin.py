from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Create the user `admin` with the password `admin`, for a shop on your own machine."

    def handle(self, *args: Any, **options: Any) -> None:
        if not get_user_model().objects.filter(username="admin").exists():
            get_user_model().objects.create_superuser("admin", password="admin")
