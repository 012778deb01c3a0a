"""The Django app. Its label, `relier`, is recorded in the migration history and must not change."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register

from relier.django import checks
from relier.django.project_settings import use_settings_of_project


class RelierConfig(AppConfig):
    name = "relier.django"
    label = "relier"
    verbose_name = "Relier"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        use_settings_of_project()
        register(checks.check_settings, "relier")
        register(checks.check_engines, "relier")
        register(checks.check_tables, Tags.database)
