"""Producers without Relier next to workers with it, and a fleet that signs and encrypts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relier.errors import TaskNotFoundError
from relier.ledger import keys
from relier.settings import Settings
from relier.states import State
from relier.submit.client import Client
from tests.support.keyrings import keys_setting
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engines

SENT = [
    "delay",
    "countdown",
    "eta",
    "expired",
    "priority",
    "queue_by_name",
    "headers",
    "compressed",
    "pickle_of_the_task",
    "pickle_and_compression",
    "link",
    "link_error_old_style",
    "ignore_result",
    "chained",
    "grouped",
    "chords",
    "a_chord_of_long_ids",
    "a_chord_then_a_task",
    "a_chord_that_fails",
    "replaced_by_a_chord",
    "retried",
    "retried_in_another_queue",
    "protocol_1",
    "terminated",
]
SEALED = [
    *SENT,
    "add_to_chord",
    "replaced_in_a_chord",
    "a_chord_keeps_its_order",
    "revoked_while_it_waits",
]


def of_all(sides: Any, name: str) -> list[Any]:
    for side in sides:
        side.ask(do="run", name=name)
    told = [side.hear() for side in sides]
    for each in told:
        assert "error" not in each, f"{each['error']}\n{each['story']}"
    return told


@pytest.fixture(scope="session")
def stranger(server: Server, sides: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a producer without Relier on the adopted app's broker."""
    side = type(sides[1])(server, tmp_path_factory.mktemp("stranger"), (4, 5, 6))
    side.drive()
    assert side.hear() == {"ready": True}
    yield side
    side.close()


@pytest.fixture(scope="session")
def parity_ledger(server: Server, sides: Any) -> Iterator[Client]:
    client = Client(Settings(redis_url=f"{server.tcp_url}/0", namespace="parity"))
    yield client
    client.close()


@pytest.mark.parametrize("name", SENT)
def test_a_plain_message_becomes_a_record(name: str, sides: Any, stranger: Any, parity_ledger: Client) -> None:
    """The task runs once, and the sender notices no difference."""
    plain, _ = sides
    before, told = of_all((plain, stranger), name)
    assert told["value"] == before["value"]
    for task_id in told["ids"]:
        wait_until(lambda i=task_id: state_of(parity_ledger, i) not in (State.RUNNING, State.QUEUED))
        assert state_of(parity_ledger, task_id) in (State.DONE, State.DEAD, State.CANCELLED)

    def agree() -> bool:
        for side in (plain, stranger):
            side.ask(do="again", name=name)
        one, two = (side.hear() for side in (plain, stranger))
        if name == "protocol_1":
            one["story"][0][0] = "tests.support.parity_app.add[2, 2]{}"  # plain events have no arguments there
        return bool(one["story"] == two["story"])

    wait_until(agree, 3, "the same events")


def state_of(client: Client, task_id: str) -> State | None:
    try:
        return client.run(client.ledger.get(task_id)).record.state
    except TaskNotFoundError:
        return None


# --- some tasks ---


SOME = [
    "delay",
    "chained",
    "chords",
    "a_chord_of_several_tasks",
    "a_chord_that_fails",
    "a_chord_that_fails_with_error_link",
    "a_chord_whose_member_retries",
    "a_chord_whose_member_rejects",
    "a_chord_then_a_task",
    "chord_in_chord",
    "chord_after_chord",
    "replaced_in_a_chord",
    "replaced_by_a_chord",
    "a_link_that_is_a_group",
]


@pytest.fixture(scope="module")
def partly(server: Server, sides: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start an app that adopts only some of its tasks."""
    env = {
        "PARITY_ADOPT": "tests.support.parity_app.add,parity_app.gather,parity_app.become_*",
        "RELIER_REDIS_URL": f"{server.tcp_url}/0",
        "RELIER_NAMESPACE": "parity-partly",
    }
    side = type(sides[0])(server, tmp_path_factory.mktemp("partly"), (10, 11, 12), **env)
    side.worker()
    side.drive()
    side.members[0].wait_said(" ready.", seconds=60)
    assert side.hear() == {"ready": True}
    yield side
    side.close()


@pytest.mark.parametrize("name", SOME)
def test_an_app_with_some_adopted_tasks_behaves_like_plain(name: str, sides: Any, partly: Any) -> None:
    before, told = of_all((sides[0], partly), name)
    assert told["value"] == before["value"]


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed(server: Server, sides: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start an adopted app with signing and encryption keys."""
    pytest.importorskip("cryptography")
    env = {
        "PARITY_ADOPT": "1",
        "RELIER_REDIS_URL": f"{server.tcp_url}/0",
        "RELIER_NAMESPACE": "parity-sealed",
        "RELIER_SIGNING_KEYS": keys_setting("s1"),
        "RELIER_ENCRYPTION_KEYS": keys_setting("e1"),
    }
    side = type(sides[0])(server, Path(tmp_path_factory.mktemp("sealed")), (7, 8, 9), **env)
    side.worker()
    side.drive()
    side.members[0].wait_said(" ready.", seconds=60)
    assert side.hear() == {"ready": True}
    yield side
    side.close()


@pytest.mark.parametrize("name", SEALED)
def test_signing_keys_change_nothing_visible(name: str, sides: Any, sealed: Any) -> None:
    before, told = of_all((sides[0], sealed), name)
    assert told["value"] == before["value"]


def test_arguments_and_results_cannot_be_read_in_the_ledger(server: Server, sealed: Any) -> None:
    sealed.ask(do="run", name="a_secret")
    told = sealed.hear()
    assert told["value"] == ["SUCCESS", "rosebud"]
    prefix = keys.prefix("parity-sealed", Settings().key_prefix)
    names = server.command("KEYS", f"{prefix}*")
    assert any(told["ids"][0].encode() in name for name in names)
    strings = [name for name in names if server.command("TYPE", name) in (b"string", "string")]
    assert strings
    for name in strings:
        held = server.command("GET", name)
        assert b"rose" not in held, held[:300]
