"""Find the modules of a project that hold tasks: `tasks` in each installed app."""

from __future__ import annotations

from django.apps import apps
from django.utils.module_loading import module_has_submodule

APP = "relier.django"  # its own `tasks` is the backend


def modules_with_tasks() -> list[str]:
    """Return the `tasks` modules of the installed apps. They are not imported here."""
    return [
        f"{app.name}.tasks"
        for app in apps.get_app_configs()
        if app.name != APP and module_has_submodule(app.module, "tasks")
    ]
