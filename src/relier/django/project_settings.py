"""Read `settings.RELIER`, a dict: `{"REDIS_URL": …}`. Its keys are the RELIER_* variables without the prefix.

Environment variables win over it, so a deployment can change what a project sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from relier.settings import ProjectSettings, use_project_settings
from relier.submit.client import use_client

NAME = "RELIER"


def read() -> Mapping[str, Any]:
    given: Mapping[str, Any] = getattr(settings, NAME, {})
    return given


PROJECT = ProjectSettings(f"settings.{NAME}", read)


def use_settings_of_project() -> None:
    """Use `settings.RELIER` in this process, and follow `override_settings` in tests."""
    use_project_settings(PROJECT)
    setting_changed.connect(_changed, dispatch_uid="relier.settings")


def _changed(*, setting: str, **_: Any) -> None:
    if setting == NAME:
        use_project_settings(PROJECT)
        use_client(None)
