"""Unreadable messages: the worker continues, and each message becomes a dead letter with its bytes."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

from relier.celery.options import REPORTED_BY_WORKER
from relier.celery.working.unreadable import UnreadableMessages
from relier.codec import decode
from relier.envelope import open_envelope
from relier.failure import failure_of
from relier.states import State
from tests.celery.conftest import Shop
from tests.support.fleet import wait_until


def message(headers: dict[str, str] | None, **more: str) -> str:
    tag = {"delivery_tag": f"tag-{len(more)}-{headers}", "body_encoding": "base64"}
    properties = tag | {"delivery_info": {"exchange": "", "routing_key": "celery"}}
    body = base64.b64encode(b'[["tea"],{},{}]').decode()
    return json.dumps({"body": body, "headers": headers, "properties": properties, **more})


JSON = {"content-type": "application/json", "content-encoding": "utf-8"}


def dead(shop: Shop) -> int:
    return shop.fleet.stats().by_state()[State.DEAD]


def test_an_unreadable_message_becomes_a_dead_letter_and_the_worker_continues(shop: Shop) -> None:
    shop.worker()
    for raw in (
        b"\xff no JSON",
        b'{"no": "message"}',
        message({"task": "tests.support.celery_shop_app.sell", "id": "x1"}),
    ):
        shop.broker.command("LPUSH", "celery", raw)
    shop.broker.command("LPUSH", "celery", message({"task": "tests.support.celery_shop_app.sell"}, **JSON))  # no id
    wait_until(lambda: dead(shop) == 4, 20, "four dead letters")
    shop.run("sell.delay('milk')")
    wait_until(lambda: "sold milk" in shop.printed(), 20, "a sale")
    code, told = shop.rl("dlq", "--json")
    assert code == 0
    assert {task["name"] for task in json.loads(told)["tasks"]} == {"relier.garbage"}


def test_a_message_delivered_twice_is_buried_once(shop: Shop) -> None:
    shop.worker()
    for _ in range(3):
        shop.broker.command("LPUSH", "celery", b"the same rubbish")
    wait_until(lambda: shop.broker.command("LLEN", "celery") == 0 and dead(shop) == 1, 20, "one dead letter")


def test_a_message_of_a_plain_producer_becomes_a_record_and_runs(shop: Shop) -> None:
    shop.worker()
    shop.broker.command(
        "LPUSH", "celery", message({"task": "tests.support.celery_shop_app.sell", "id": "from-a-plain-one"}, **JSON)
    )
    wait_until(lambda: shop.printed() == ["sold tea"], 20, "a sale")
    (task,) = shop.fleet.wait_done(["from-a-plain-one"])
    assert task.record.name == "tests.support.celery_shop_app.sell"


def test_a_message_of_a_task_unknown_here_waits_for_a_worker_that_knows_it(shop: Shop) -> None:
    shop.worker()
    shop.broker.command(
        "LPUSH", "celery", message({"task": "tests.support.celery_shop_app.nobody", "id": "early"}, **JSON)
    )
    wait_until(lambda: _history(shop, "early"), 20, "a put-back")
    assert shop.fleet.get("early").record.state in (State.SCHEDULED, State.QUEUED, State.RUNNING)


def letters(shop: Shop) -> dict[str, dict[str, Any]]:
    """Return reason -> content of the letter. Each reason must occur once."""
    code, told = shop.rl("dlq", "--json")
    assert code == 0
    found = {}
    for task in json.loads(told)["tasks"]:
        dead = shop.fleet.get(task["id"])
        ((letter,), _) = decode(open_envelope(dead.payload or b"", task_id=task["id"], name=task["name"]).body)
        found[dead.record.reason] = letter
    return found


def test_each_dead_letter_keeps_its_own_reason_even_one_left_by_another_worker(shop: Shop) -> None:
    unreadable = UnreadableMessages(SimpleNamespace(client=shop.fleet.client), None, str)  # type: ignore[arg-type]
    letter, _ = unreadable._dead_letter(b"left behind", "celery", failure_of(KeyError("task")))
    shop.fleet.store.run(shop.fleet.ledger.submit([letter]))
    shop.worker("-P", "solo")
    shop.broker.command("LPUSH", "celery", b"\xff no JSON")
    wait_until(lambda: dead(shop) == 2, 20, "two dead letters")
    found = letters(shop)
    assert found["KeyError"]["message"] == b"left behind"
    (other,) = found.keys() - {"KeyError"}
    assert found[other]["message"] == b"\xff no JSON"


def test_a_message_too_large_to_bury_is_moved_aside_and_not_redelivered(shop: Shop) -> None:
    worker = shop.worker("-P", "solo")
    shop.plain("sell.apply_async(('x' * 2_000_000,), task_id='large'); sell.delay('tea')")
    wait_until(lambda: shop.printed() == ["sold tea"] and dead(shop) == 1, 20, "a sale and a dead letter")
    letter = letters(shop)["PayloadTooLargeError"]
    assert (letter["cut"], letter["queue"]) == (True, "celery")
    assert letter["bytes"] > 2_000_000
    assert "'id': 'large'" in letter["message"]
    assert shop.broker.command("LLEN", "celery") == 0
    (whole,) = shop.broker.command("LRANGE", "relier.garbage", "0", "-1")
    assert base64.b64decode(json.loads(whole)["body"]).count(b"x") >= 2_000_000
    assert worker.said().count("the whole message is in the broker's queue relier.garbage") == 1


def test_unreadable_bytes_too_large_to_bury_are_moved_aside(shop: Shop) -> None:
    shop.worker("-P", "solo")
    shop.broker.command("LPUSH", "celery", b"\xff" * 2_000_000)
    wait_until(lambda: dead(shop) == 1, 20, "a dead letter")
    wait_until(lambda: shop.broker.command("LRANGE", "relier.garbage", "0", "-1") == [b"\xff" * 2_000_000], 5, "it")


def test_a_message_the_ledger_can_never_accept_becomes_a_dead_letter(shop: Shop) -> None:
    worker = shop.worker("-P", "solo")
    shop.broker.command(
        "LPUSH", "celery", message({"task": "tests.support.celery_shop_app.sell", "id": "not one word"}, **JSON)
    )
    shop.broker.command(
        "LPUSH", "celery", message({"task": "tests.support.celery_shop_app.nobody", "id": "nor this one"}, **JSON)
    )
    wait_until(lambda: dead(shop) == 2, 20, "two dead letters")
    assert set(letters(shop)) == {"InvalidSubmissionError"}
    assert "message returned to the broker" not in worker.said()


def test_an_error_callback_of_a_plain_producers_task_is_noticed(shop: Shop) -> None:
    (task_id,) = shop.plain("print(sell.apply_async(('tea',), link_error=complain.s()).id)").split()
    shop.worker("-P", "solo")
    wait_until(lambda: shop.printed() == ["sold tea"], 20, "a sale")
    (task,) = shop.fleet.wait_done([task_id])
    assert task.record.spec.max_resurrections == REPORTED_BY_WORKER


def _history(shop: Shop, task_id: str) -> bool:
    try:
        return bool(shop.fleet.get(task_id).history)
    except Exception:  # noqa: BLE001 - not there yet
        return False
