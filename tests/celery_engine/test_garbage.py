"""Messages nobody can read: the worker goes on, and each is a dead letter with its bytes."""

from __future__ import annotations

import base64
import json

from celery_engine.conftest import Shop
from fleet import wait_until
from relier.states import State


def message(headers: dict[str, str] | None, **more: str) -> str:
    tag = {"delivery_tag": f"tag-{len(more)}-{headers}", "body_encoding": "base64"}
    properties = tag | {"delivery_info": {"exchange": "", "routing_key": "celery"}}
    body = base64.b64encode(b'[["tea"],{},{}]').decode()
    return json.dumps({"body": body, "headers": headers, "properties": properties, **more})


JSON = {"content-type": "application/json", "content-encoding": "utf-8"}


def dead(shop: Shop) -> int:
    return shop.fleet.stats().by_state()[State.DEAD]


def test_what_cannot_be_read_is_a_dead_letter_and_the_worker_goes_on(shop: Shop) -> None:
    shop.worker()
    for raw in (b"\xff no JSON", b'{"no": "message"}', message({"task": "shop_app.sell", "id": "x1"})):
        shop.broker.command("LPUSH", "celery", raw)
    shop.broker.command("LPUSH", "celery", message({"task": "shop_app.sell"}, **JSON))  # no id
    wait_until(lambda: dead(shop) == 4, 20, "four dead letters")
    shop.run("sell.delay('milk')")
    wait_until(lambda: "sold milk" in shop.printed(), 20, "a sale")
    code, told = shop.rl("dlq", "--json")
    assert code == 0
    assert {task["name"] for task in json.loads(told)["tasks"]} == {"relier.garbage"}


def test_a_message_that_comes_twice_is_parked_once(shop: Shop) -> None:
    shop.worker()
    for _ in range(3):
        shop.broker.command("LPUSH", "celery", b"the same rubbish")
    wait_until(lambda: shop.broker.command("LLEN", "celery") == 0 and dead(shop) == 1, 20, "one dead letter")


def test_a_message_of_a_plain_producer_becomes_a_record_and_runs(shop: Shop) -> None:
    shop.worker()
    shop.broker.command("LPUSH", "celery", message({"task": "shop_app.sell", "id": "from-a-plain-one"}, **JSON))
    wait_until(lambda: shop.printed() == ["sold tea"], 20, "a sale")
    (task,) = shop.fleet.wait_done(["from-a-plain-one"])
    assert task.record.name == "shop_app.sell"


def test_a_message_of_a_task_unknown_here_waits_for_a_worker_that_knows_it(shop: Shop) -> None:
    shop.worker()
    shop.broker.command("LPUSH", "celery", message({"task": "shop_app.nobody", "id": "early"}, **JSON))
    wait_until(lambda: _history(shop, "early"), 20, "a put-back")
    assert shop.fleet.get("early").record.state in (State.SCHEDULED, State.QUEUED, State.RUNNING)


def _history(shop: Shop, task_id: str) -> bool:
    try:
        return bool(shop.fleet.get(task_id).history)
    except Exception:  # noqa: BLE001 - not there yet
        return False
