"""Everything that Celery's user guide shows gives the same results and events with Relier as without.

Where it does not, the difference is listed in docs/how-to/celery-differences.md, and is stated here.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.servers import wait_until

pytestmark = pytest.mark.engines
Told = dict[str, Any]


# Scenarios that run on every version of Celery, and give the same in all of them.
SMOKE = {
    *("delay", "countdown", "eta", "expired", "expires_before_its_eta", "priority", "queue_by_name", "task_routes"),
    *("headers", "pickle_of_the_task", "pickle_and_compression", "link", "link_error", "link_error_old_style"),
    *("ignore_result", "soft_time_limit", "time_limit", "always_eager", "chained", "a_chain_that_breaks", "grouped"),
    *("a_chain_with_error_link", "chords", "a_chord_that_fails_with_error_link", "a_chord_whose_member_is_revoked"),
    *("a_chord_whose_member_retries", "a_chord_then_a_task", "chord_in_chord", "a_chord_of_chains_that_breaks"),
    *(
        "chunked",
        "replaced_by_a_chord",
        "replaced_in_a_chord",
        "add_to_chord",
        "stamped",
        "retried",
        "autoretry",
    ),
    *("retried_too_often_with_error_link", "retried_without_throwing", "a_retry_in_a_chain", "ignored"),
    *("rejected_and_requeued", "revoked_while_it_waits", "rate_limit", "its_process_is_killed", "protocol_1", "beat"),
    *("dies_for_ever", "retried_without_throwing_in_a_chord", "inspect_active"),
}


def names(decorator: str = "scenario") -> list[Any]:
    """Return the names of the scenarios. They are read from the source, because importing the module needs a broker."""
    tree = ast.parse((ROOT / "tests" / "support" / "parity_scenarios.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [node.name for node in functions if any(decorator == name_of(each) for each in node.decorator_list)]
    return [pytest.param(name, marks=pytest.mark.smoke) if name in SMOKE else name for name in found]


def name_of(decorator: ast.expr) -> str:
    return decorator.func.id if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) else ""


# --- differences: from the report of plain Celery to that of the adopted app ----------------------------------------


def not_received_before_its_time(plain: Told) -> None:
    """A task with an ETA waits in the ledger, so no worker has received it when it is revoked or expires."""
    told = next(about for label, about in plain["story"] if label.startswith("tests.support.parity_app.add"))
    told["events"].remove(["task-received", "0"])
    told["signals"].remove("task_received")


def one_error_callback(plain: Told) -> None:
    """Celery 5.7 calls the error callbacks of a hard time limit twice."""
    errbacks = [each for each in plain["story"] if each[0].startswith("tests.support.parity_app.on_error_old")]
    assert len(errbacks) == 2
    plain["story"].remove(errbacks[0])


def one_task(plain: Told) -> None:
    plain["value"] = ["ran"]
    ((_, about),) = plain["story"]
    about["events"] = [["task-received", "0"], ["task-started"], ["task-succeeded", "7"]]
    about["signals"] = ["task_received", "task_prerun", "task_success", "task_postrun SUCCESS"]


def not_in_the_broker(plain: Told) -> None:
    plain["value"][0] = 0


def requeued(plain: Told) -> None:
    """With Relier, the task can be requeued."""
    plain["value"] = ["ran", "ran"]
    ((_, about),) = plain["story"]
    again = [["task-received", "0"], ["task-started"], ["task-succeeded", "'second'"]]
    about["events"] = sorted([*about["events"], *again])
    ran = ["task_received", "task_prerun", "task_success", "task_postrun SUCCESS"]
    about["signals"] = sorted([*about["signals"], *ran])


def without_the_transports(plain: Told) -> None:
    ours = ["correlation_id", "delivery_mode", "priority", "reply_to"]
    assert set(ours) < set(plain["value"])
    plain["value"] = ours
    ((_, about),) = plain["story"]
    about["events"][-1] = ["task-succeeded", str(ours)]


def told_as_failed(plain: Told) -> None:
    ((_, about),) = plain["story"]
    about["events"].append(["task-failed", "EncodeError(TypeError('Object of type set is not JSON serializable'))"])


def refused(error: str) -> Callable[[Told], None]:
    """With Relier, the push is refused, and the caller gets an error."""

    def tell(plain: Told) -> None:
        plain["value"] = error
        plain["story"] = []

    return tell


def with_its_arguments(plain: Told) -> None:
    """With Relier, events contain the arguments. Messages of protocol 1 have none."""
    plain["story"][0][0] = "tests.support.parity_app.add(2, 2){}"


def not_scheduled(plain: Told) -> None:
    plain["value"] = []


def not_reserved(plain: Told) -> None:
    plain["value"] = False


def three_more_names(plain: Told) -> None:
    plain["value"] = sorted([*plain["value"], "relier.chord", "relier.part", "relier.spread"])


DIFFERENT: dict[str, Callable[[Told], None]] = {
    "expires_before_its_eta": not_received_before_its_time,
    "revoked_while_it_waits": not_received_before_its_time,
    "a_chord_whose_member_expires": not_received_before_its_time,
    "a_chord_whose_member_is_revoked": not_received_before_its_time,
    "the_same_id_twice": one_task,
    "queue_length": not_in_the_broker,
    "rejected_and_requeued_after_its_acknowledgement": requeued,
    "properties": without_the_transports,
    "a_failure_inside_celery": told_as_failed,
    "protocol_1": with_its_arguments,
    "a_large_argument": refused("PayloadTooLargeError"),
    "time_limit_with_error_link": one_error_callback,
    "inspect_scheduled": not_scheduled,
    "inspect_reserved": not_reserved,
    "inspect_registered": three_more_names,
}


def of_both(sides: Any, do: str, name: str) -> list[Told]:
    for side in sides:
        side.ask(do=do, name=name)
    return [side.hear() for side in sides]


def expected(name: str, plain: Told) -> Told:
    told = copy.deepcopy(plain)
    if name in DIFFERENT:
        DIFFERENT[name](told)
    return told


@pytest.fixture(scope="module")
def seen(sides: Any) -> Iterator[dict[str, Told]]:
    """Return the report of each scenario. At the end, each is compared once more, in case something happened later."""
    stories: dict[str, Told] = {}
    yield stories
    for name, story in stories.items():
        _, adopted = of_both(sides, "again", name)
        assert adopted["story"] == story, f"{name} told more afterwards"


@pytest.mark.parametrize("name", names())
def test_adopted_behaves_like_plain(name: str, sides: Any, seen: dict[str, Told]) -> None:
    plain, adopted = of_both(sides, "run", name)
    for side, told in (("plain", plain), ("adopted", adopted)):
        assert "error" not in told, f"{side}: {told['error']}\n{told['story']}"
        del told["ids"]

    def agree() -> bool:
        if expected(name, plain) == adopted:
            return True
        for told, now in zip((plain, adopted), of_both(sides, "again", name), strict=True):
            told.update(now)  # the last event may still be under way
        return False

    try:
        wait_until(agree, 2)
    except AssertionError:
        assert adopted == expected(name, plain)
    seen[name] = adopted["story"]


@pytest.mark.parametrize("name", names("of_the_adopted_app"))
def test_scenarios_only_for_the_adopted_app_pass(name: str, sides: Any) -> None:
    _, adopted = sides
    adopted.ask(do="run", name=name)
    told = adopted.hear()
    assert "error" not in told, f"{told['error']}\n{told['story']}"
