"""What people may see: the application's hook decides, and if the hook fails, the value is hidden."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tests
from hypothesis import strategies as st

from relier.errors import ConfigurationError
from relier.failure import MOST_MESSAGE, MOST_TRACEBACK, Failure, failure_of, read_failure, redacted, write_failure
from relier.redact import check_hook, showing, shown
from relier.settings import Settings

CARD = "4111-1111-1111-1111"


def mask(_task_name: str, value: Any) -> Any:
    """A hook as an application might write it."""
    if isinstance(value, str):
        return re.sub(r"\d{4}-\d{4}-\d{4}-\d{4}", "(card)", value)
    if isinstance(value, list | tuple):
        return [mask(_task_name, item) for item in value]
    if isinstance(value, dict):
        return {key: "(secret)" if key == "cvc" else mask(_task_name, item) for key, item in value.items()}
    return value


def names(task_name: str, value: Any) -> str:
    return f"{task_name} {type(value).__name__}"


def broken(_task_name: str, value: Any) -> Any:
    raise ValueError(f"cannot redact {value}")


def nothing(_task_name: str, _value: Any) -> None:
    return None


def odd(_task_name: str, _value: Any) -> Any:
    return Unprintable()


async def later(_task_name: str, value: Any) -> Any:
    return value


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError(CARD)


class Holder:
    @staticmethod
    def mask(_task_name: str, value: Any) -> Any:
        return mask(_task_name, value)


def using(name: str) -> Settings:
    return Settings(redact=f"{__name__}:{name}")


def test_without_a_hook_everything_is_shown() -> None:
    value = {"card": [CARD]}
    assert shown(Settings(), "shop.charge", value) is value
    assert showing("", "shop.charge") is None
    check_hook(Settings())


@pytest.mark.parametrize("name", ["mask", "Holder.mask"])
def test_the_hook_decides_what_is_shown(name: str) -> None:
    value = [[CARD, 5], {"cvc": 737, "note": f"from {CARD}"}]
    assert shown(using(name), "shop.charge", value) == [["(card)", 5], {"cvc": "(secret)", "note": "from (card)"}]


def test_the_hook_gets_the_name_of_the_task() -> None:
    assert shown(using("names"), "shop.charge", {}) == "shop.charge dict"


def test_a_hook_that_raises_hides_the_value_and_is_reported() -> None:
    hidden = shown(using("broken"), "shop.charge", CARD)
    assert hidden == "(hidden: tests.test_redact:broken raised ValueError)"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_here:mask", "cannot be imported (ModuleNotFoundError"),
        ("tests.test_redact:no_such_function", "cannot be imported (AttributeError"),
        ("tests.test_redact:CARD", "must be a plain function"),
        ("tests.test_redact:later", "must be a plain function"),
    ],
)
def test_an_invalid_hook_is_refused_at_start(path: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^RELIER_REDACT={path}: ") as refused:
        check_hook(Settings(redact=path))
    assert message in str(refused.value)


@pytest.mark.parametrize("path", ["mask", "shop.privacy", ":mask", "shop:", "shop privacy:mask", "shop:mask()"])
def test_an_invalid_address_is_refused_with_the_settings(path: str) -> None:
    with pytest.raises(ConfigurationError, match="invalid settings: redact: must be text that matches"):
        Settings(redact=path)


def test_a_hook_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_privacy_rules.py").write_text("def mask(task_name, value):\n    return 'masked'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert shown(Settings(redact="own_privacy_rules:mask"), "shop.charge", CARD) == "masked"


# --- failures ----------------------------------------------------------------------------------------------------


def fail(*args: Any) -> None:
    raise LookupError(*args)


def failed(*args: Any) -> Failure:
    with pytest.raises(LookupError) as raised:
        fail(*args)
    return failure_of(raised.value)


def kept(failure: Failure, hook: str) -> Failure:
    show = showing(f"{__name__}:{hook}" if hook else "", "shop.charge")
    return read_failure(write_failure(redacted(failure, show)))


def test_without_a_hook_a_failure_is_stored_completely() -> None:
    failure = failed("no such card", CARD, 5)
    assert kept(failure, "") == failure
    assert CARD in failure.traceback


def test_message_traceback_and_arguments_pass_the_hook() -> None:
    failure = kept(failed(f"{CARD} was declined", {"cvc": 737}), "mask")
    assert CARD not in json.dumps([failure.message, failure.traceback, failure.args])
    assert "(card) was declined" in failure.message
    assert failure.kind == "builtins:LookupError"
    assert "test_redact.py" in failure.traceback
    rebuilt = failure.rebuild()
    assert rebuilt is not None
    assert rebuilt.args == ("(card) was declined", {"cvc": "(secret)"})


@pytest.mark.parametrize("hook", ["broken", "odd"])
def test_a_hook_that_fails_hides_a_failure_and_is_reported(hook: str) -> None:
    failure = kept(failed(f"{CARD} was declined"), hook)
    assert failure.message.startswith("(hidden: ")
    assert failure.traceback.startswith("(hidden: ")
    assert failure.args == ""
    assert CARD not in repr(failure)
    assert type(failure.rebuild()) is LookupError


def test_a_hook_may_leave_nothing() -> None:
    assert kept(failed(CARD), "nothing") == Failure("builtins:LookupError")


@pytest.mark.parametrize("before", [MOST_MESSAGE - 10, MOST_MESSAGE - 1, MOST_MESSAGE + 5])
def test_no_half_of_a_secret_is_left_at_a_cut(before: int) -> None:
    failure = kept(failed("x" * before + CARD + "y" * MOST_TRACEBACK), "mask")
    assert "4111" not in failure.message + failure.traceback + failure.args
    assert len(failure.message) <= MOST_MESSAGE
    assert len(failure.traceback) <= MOST_TRACEBACK + 1


@tests(deadline=None)
@given(st.text(), st.sampled_from(["", "mask", "broken", "odd", "nothing", "names"]))
def test_any_failure_can_be_written(message: str, hook: str) -> None:
    failure = kept(failed(message, {"k": message}), hook)
    assert failure.name == "LookupError"
