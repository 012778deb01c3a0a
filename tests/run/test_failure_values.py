"""An exception as a dead letter stores it, and rebuilt from there."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from relier.failure import MOST_MESSAGE, MOST_TRACEBACK, Failure, failure_of, how_it_ended, read_failure, write_failure
from relier.ledger.moves.base import plain


class OrderError(Exception):
    """An exception that takes more than a message."""

    def __init__(self, order: int, price: Decimal) -> None:
        super().__init__(order, price)
        self.order = order
        self.price = price


class Outer:
    class InnerError(ValueError):
        pass


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class PickyError(Exception):
    """An exception whose `args` differ from its constructor's arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def throw(error: BaseException) -> None:
    raise error


def raised(error: BaseException) -> BaseException:
    """Return the exception with a traceback."""
    with pytest.raises(type(error)) as caught:
        throw(error)
    return caught.value


def there_and_back(error: BaseException) -> Failure:
    return read_failure(write_failure(failure_of(raised(error))))


@pytest.mark.parametrize("letter", ["日", "\0", "a", "\ud800"])
def test_a_long_failure_fits_into_the_ledger_whatever_its_characters(letter: str) -> None:
    """It is stored as JSON, which could not be read if it were truncated."""
    told = write_failure(failure_of(raised(ValueError(letter * 40_000))))
    assert plain(told) == told.encode()
    assert read_failure(told).kind == "builtins:ValueError"


def test_text_for_people_is_cut_between_characters() -> None:
    assert plain("日" * 40_000).decode() == "日" * (64 * 1024 // 3)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        KeyError("missing"),
        OSError(2, "no such file"),
        OrderError(5, Decimal("1.10")),
        Outer.InnerError("nested"),
        ValueError(),
        ValueError(("a", 1), {2: {3}}),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ValueError("lone surrogate \ud800"),
    ],
    ids=repr,
)
def test_an_exception_comes_back_as_itself(error: Exception) -> None:
    rebuilt = there_and_back(error).rebuild()
    assert type(rebuilt) is type(error)
    if "\ud800" not in str(error):
        assert rebuilt is not None
        assert rebuilt.args == error.args


def test_a_failure_keeps_class_message_and_traceback() -> None:
    failure = there_and_back(OrderError(5, Decimal("1.10")))
    assert failure.kind == f"{__name__}:OrderError"
    assert failure.name == "OrderError"
    assert failure.message == "(5, Decimal('1.10'))"
    assert "raise error" in failure.traceback
    assert there_and_back(Outer.InnerError()).name == "InnerError"


def test_the_causes_of_an_exception_are_in_the_traceback() -> None:
    error = ValueError("the effect")
    error.__cause__ = raised(KeyError("the cause"))
    assert "KeyError: 'the cause'" in there_and_back(error).traceback


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exception_that_would_end_the_caller_is_not_rebuilt(error: BaseException) -> None:
    failure = there_and_back(error)
    assert failure.name == type(error).__name__
    assert failure.rebuild() is None


def test_a_class_that_is_not_known_here_is_not_rebuilt() -> None:
    for kind in ("nowhere.at.all:Error", f"{__name__}:Missing", f"{__name__}:test_links", "builtins:print", "", ":"):
        assert Failure(kind, "message").rebuild() is None


def test_nothing_is_imported_to_rebuild_an_exception() -> None:
    import sys

    assert "wave" not in sys.modules
    assert Failure("wave:Error", "message").rebuild() is None
    assert "wave" not in sys.modules


def test_a_class_that_takes_other_arguments_is_not_rebuilt() -> None:
    failure = there_and_back(PickyError(code=5))
    assert failure.message == "code 5"
    assert failure.rebuild() is None


def test_arguments_that_cannot_be_encoded_leave_the_message() -> None:
    failure = there_and_back(ValueError("with", object()))
    assert failure.args == ""
    rebuilt = failure.rebuild()
    assert isinstance(rebuilt, ValueError)
    assert "with" in str(rebuilt)


class Unbound:
    """An object that raises when it is inspected, like a proxy outside its request."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("working outside of the request")


def test_arguments_that_cannot_be_shown_do_not_hide_the_failure() -> None:
    failure = there_and_back(ValueError("with", Unbound()))
    assert failure.name == "ValueError"
    assert failure.args == ""
    assert "with" in failure.message


def test_an_exception_that_cannot_be_shown_is_still_reported() -> None:
    failure = there_and_back(UnspeakableError())
    assert failure.name == "UnspeakableError"
    assert "__str__ failed" in failure.message


def test_endless_messages_and_tracebacks_are_cut() -> None:
    failure = there_and_back(ValueError("x" * 100_000))
    assert len(failure.message) == MOST_MESSAGE
    assert len(failure.traceback) == MOST_TRACEBACK + 1
    assert failure.args == ""


def test_an_endless_recursion_is_reported() -> None:
    def deeper(depth: int) -> Any:
        return deeper(depth + 1)

    with pytest.raises(RecursionError) as caught:
        deeper(0)
    assert there_and_back(caught.value).name == "RecursionError"


def test_an_exception_group_is_reported_with_its_parts() -> None:
    failure = there_and_back(ExceptionGroup("both", [ValueError("one"), KeyError("two")]))
    assert failure.name == "ExceptionGroup"
    assert "one" in failure.traceback
    assert "two" in failure.traceback


def test_plain_text_is_a_message() -> None:
    assert read_failure("its process was killed") == Failure(message="its process was killed")
    assert read_failure("") == Failure()
    assert read_failure("5").message == "5"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-9, r"signal 9 \(SIGKILL\); often the system's out-of-memory killer"),
        (-11, r"signal 11 \(SIGSEGV\)$"),
        (-99, r"signal 99 \(unknown\)"),
    ],
)
def test_an_exit_code_is_explained_in_words(code: int, words: str) -> None:
    import re

    assert re.search(words, how_it_ended(code))
