"""settings.RELIER: Django's processes use it, the environment overrides it, and it is checked."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.test.utils import override_settings

from relier import ConfigurationError
from relier.settings import Settings, get_settings, name_of_setting
from relier.submit.client import default_client, use_client


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("RELIER_REDIS_URL", "RELIER_NAMESPACE", "RELIER_CONCURRENCY"):
        monkeypatch.delenv(name, raising=False)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()
    use_client(None)


@pytest.mark.parametrize("key", ["NAMESPACE", "namespace", "Namespace"])
def test_the_keys_are_the_variables_without_their_prefix_in_any_case(key: str) -> None:
    with override_settings(RELIER={key: "shop", "CONCURRENCY": 7, "REDIS_URL": "redis://db:1"}):
        assert (get_settings().namespace, get_settings().concurrency) == ("shop", 7)
        assert default_client().settings.redis_url == "redis://db:1"
    assert get_settings().namespace == "default"


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_NAMESPACE", "staging")
    with override_settings(RELIER={"NAMESPACE": "shop", "CONCURRENCY": 7}):
        assert (get_settings().namespace, get_settings().concurrency) == ("staging", 7)


def test_code_wins_over_both() -> None:
    with override_settings(RELIER={"NAMESPACE": "shop"}):
        assert Settings(namespace="code").namespace == "code"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"NAMESPAC": "a"}, "settings.RELIER has an unknown setting 'NAMESPAC'; did you mean 'NAMESPACE'?"),
        ({"RELIER_NAMESPACE": "a"}, "did you mean 'NAMESPACE'?"),
        ({"BROKER": "a"}, "see docs/reference/settings.md for the names"),
        ({"NAMESPACE": "a", "namespace": "b"}, "has the setting 'NAMESPACE' twice; remove one"),
        (
            {"CONCURRENCY": "many"},
            "settings.RELIER['CONCURRENCY']: must be a whole number, at least 1 and at most 100,000",
        ),
        ("redis://db:1", "settings.RELIER must be a dict such as {'REDIS_URL': …}, not 'redis://db:1'"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_to_do(given: Any, said: str) -> None:
    with override_settings(RELIER=given):
        with pytest.raises(ConfigurationError) as raised:
            get_settings()
        assert said in str(raised.value)
        (found,) = [one for one in run_checks(tags=["relier"]) if one.id == "relier.E001"]
        assert said in found.msg


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_CONCURRENCY", "many")
    with override_settings(RELIER={"CONCURRENCY": 7}):
        assert name_of_setting("concurrency") == "RELIER_CONCURRENCY"
        with pytest.raises(
            ConfigurationError, match="RELIER_CONCURRENCY: must be a whole number, at least 1 and at most 100,000"
        ):
            get_settings()
