"""Several beat nodes on one ledger: each occurrence becomes one task, whichever node is first and whatever changes."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from celery import signals
from celery.beat import BeatLazyFunc
from celery.schedules import crontab
from kombu.common import Broadcast

from relier import ConfigurationError
from relier.celery import Beat
from relier.celery.beat import scheduler as module
from relier.errors import RedisConnectionError
from relier.ledger.schedule_records import CELERY, ScheduleState, ScheduleVerdict
from relier.schedules.api import Schedules
from relier.states import State
from tests.celery.beat.conftest import Desk

EVERY_TEN = {"tens": {"task": "shop.count", "schedule": 10.0, "args": [1]}}


def call_in(message: Any) -> Any:
    args, kwargs, _ = json.loads(message.body)
    return args, kwargs


def test_an_entry_is_a_schedule_of_beat_in_the_ledger(desk: Desk) -> None:
    node = desk.beat(EVERY_TEN)
    stored = desk.stored("tens")
    assert (stored.state, stored.group, stored.origin) == (ScheduleState.ACTIVE, CELERY, "shop")
    assert desk.fires("tens") == []
    assert node.tick() == node.max_interval


def test_a_due_entry_is_one_task_as_publish_makes_it(desk: Desk) -> None:
    node = desk.beat(EVERY_TEN)
    desk.advance(10)
    node.tick()
    (fire,) = desk.fires("tens")
    assert fire.outcome == "fired"
    task = desk.sent("tens")
    assert (task.record.name, task.record.queue, task.record.state) == ("shop.count", "celery", State.QUEUED)
    message = desk.message("tens")
    assert message.headers["id"] == message.properties["correlation_id"] == fire.task_id
    assert call_in(message) == ([1], {})


def test_three_nodes_send_each_occurrence_once(desk: Desk) -> None:
    nodes = [desk.beat(EVERY_TEN) for _ in range(3)]
    for _ in range(6):
        desk.advance(10)
        for node in nodes:
            node.tick()
    assert [fire.outcome for fire in desk.fires("tens")] == ["fired"] * 6
    assert desk.crew.count("submitted") == 6


def test_a_node_that_was_frozen_before_it_fired_sends_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = desk.beat(EVERY_TEN), desk.beat(EVERY_TEN)
    call = type(slow.context).call

    def frozen(context: Any, due: Any, now_ms: int) -> Any:
        made = call(context, due, now_ms)
        if context is slow.context and quick.context.verdicts == []:
            quick.tick()
        return made

    desk.advance(10)
    monkeypatch.setattr(type(slow.context), "call", frozen)
    slow.tick()
    assert len(desk.fires("tens")) == 1
    assert desk.crew.count("submitted") == 1


def test_a_node_that_lost_the_race_lets_the_other_go_first(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    node = desk.beat({"tens": {"task": "shop.count", "schedule": 3.0}})
    node.context.verdicts.append(ScheduleVerdict.STALE)
    assert 3.0 < node.tick() <= 3.0 + module.LAG_S[1]
    desk.advance(3)
    assert node.tick() == pytest.approx(3.0)


def test_options_of_the_entry_reach_the_task(desk: Desk) -> None:
    options = {"queue": "reports", "priority": 3, "expires": 60, "headers": {"tenant": "a"}, "time_limit": 9}
    node = desk.beat({"e": {"task": "shop.count", "schedule": 10, "kwargs": {"n": 2}, "options": options}})
    desk.advance(10)
    node.tick()
    message = desk.message("e")
    assert desk.sent("e").record.queue == "reports"
    assert message.properties["priority"] == 3
    assert message.headers["expires"]
    assert message.headers["tenant"] == "a"
    assert message.headers["timelimit"] == [9, None]
    assert call_in(message) == ([], {"n": 2})


def test_an_entry_with_a_countdown_waits_in_the_ledger(desk: Desk) -> None:
    node = desk.beat({"e": {"task": "shop.count", "schedule": 10, "options": {"countdown": 10**8}}})
    desk.advance(10)
    node.tick()
    assert desk.sent("e").record.state is State.SCHEDULED


def test_a_task_known_only_by_its_name_is_sent(desk: Desk) -> None:
    node = desk.beat({"e": {"task": "elsewhere.work", "schedule": 10}})
    desk.advance(10)
    node.tick()
    assert desk.sent("e").record.name == "elsewhere.work"


def test_routes_and_signals_apply_as_for_any_task(desk: Desk) -> None:
    seen: list[str] = []

    def before(headers: Any, **_: Any) -> None:
        seen.append(headers["id"])

    node = desk.beat(EVERY_TEN, task_routes={"shop.count": {"queue": "counts"}})
    signals.before_task_publish.connect(before)
    try:
        desk.advance(10)
        node.tick()
    finally:
        signals.before_task_publish.disconnect(before)
    assert desk.sent("tens").record.queue == "counts"
    assert seen == [desk.stored("tens").last]


def test_after_downtime_an_entry_runs_once(desk: Desk) -> None:
    desk.beat(EVERY_TEN)
    desk.advance(95)
    node = desk.beat(EVERY_TEN)
    node.tick()
    fired, missed = desk.fires("tens")
    assert (fired.outcome, missed.outcome, missed.skipped) == ("fired", "missed", 8)
    assert node.tick() == pytest.approx(5.0)


def test_a_crontab_past_its_starting_deadline_does_not_run(desk: Desk) -> None:
    hourly = {"e": {"task": "shop.count", "schedule": crontab(minute=0)}}
    desk.beat(hourly, beat_cron_starting_deadline=60)
    desk.advance(3600 + 1800 - desk.crew.clock.now_us / 1e6 % 3600)
    desk.beat(hourly, beat_cron_starting_deadline=60).tick()
    assert [fire.outcome for fire in desk.fires("e")] == ["missed"]
    desk.advance(1800)
    desk.beat(hourly, beat_cron_starting_deadline=60).tick()
    assert [fire.outcome for fire in desk.fires("e")] == ["fired", "missed"]


def test_a_removed_entry_is_disabled_and_named(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.beat(EVERY_TEN | {"old": {"task": "shop.count", "schedule": 10}})
    with caplog.at_level(logging.WARNING, "relier"):
        node = desk.beat(EVERY_TEN)
    assert "shop:old" in caplog.text
    assert desk.stored("old").state is ScheduleState.DISABLED
    desk.advance(10)
    node.tick()
    assert (len(desk.fires("tens")), desk.fires("old")) == (1, [])


def test_an_entry_that_comes_back_runs_again(desk: Desk) -> None:
    desk.beat(EVERY_TEN)
    desk.beat({})
    desk.advance(100)
    node = desk.beat(EVERY_TEN)
    assert desk.fires("tens") == []
    desk.advance(10)
    node.tick()
    assert [fire.outcome for fire in desk.fires("tens")] == ["fired"]


def test_an_edited_entry_runs_its_due_occurrence_as_it_was(desk: Desk) -> None:
    desk.beat(EVERY_TEN)
    desk.advance(12)
    node = desk.beat({"tens": {"task": "shop.count", "schedule": 30.0, "args": [2]}})
    assert call_in(desk.message("tens")) == ([1], {})
    desk.advance(30)
    node.tick()
    assert call_in(desk.message("tens")) == ([2], {})
    assert len(desk.fires("tens")) == 2


def test_a_node_with_older_code_sends_what_is_in_the_ledger(desk: Desk) -> None:
    older = desk.beat(EVERY_TEN)
    desk.beat({"tens": {"task": "shop.count", "schedule": 10.0, "args": [2]}})
    desk.advance(10)
    older.tick()
    assert call_in(desk.message("tens")) == ([2], {})


def test_declaring_the_same_entries_again_changes_nothing(desk: Desk) -> None:
    desk.beat(EVERY_TEN)
    before = desk.stored("tens")
    desk.advance(4)
    desk.beat(EVERY_TEN)
    assert desk.stored("tens") == before


def test_two_apps_have_entries_of_one_name(desk: Desk) -> None:
    node, other = desk.beat(EVERY_TEN), desk.beat(EVERY_TEN, main="other")
    desk.advance(10)
    other.tick()
    assert (desk.fires("tens"), desk.crew.count("submitted")) == ([], 1)
    node.tick()
    assert (len(desk.fires("tens")), desk.crew.count("submitted")) == (1, 2)


def test_entries_added_by_add_periodic_task_are_run(desk: Desk) -> None:
    app = desk.app({})
    app.on_after_configure.connect(lambda sender, **_: sender.add_periodic_task(10.0, sender.tasks["shop.count"].s(7)))
    app.add_periodic_task(crontab(minute=5), app.tasks["shop.count"].s(), name="named")
    node = Beat(app)
    node.tick()
    assert "named" in node.schedule
    assert desk.stored("named").state is ScheduleState.ACTIVE


def test_lazy_arguments_are_computed_when_the_entry_is_sent(desk: Desk) -> None:
    numbers = iter(range(5))
    node = desk.beat({"e": {"task": "shop.count", "schedule": 10, "args": [BeatLazyFunc(lambda: next(numbers))]}})
    for expected in (0, 1):
        desk.advance(10)
        node.tick()
        assert call_in(desk.message("e")) == ([expected], {})


def test_lazy_arguments_need_a_node_that_has_them(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    older = desk.beat({})
    desk.beat({"e": {"task": "shop.count", "schedule": 10, "args": [BeatLazyFunc(dict)]}})
    desk.advance(10)
    older.tick()
    assert desk.fires("e") == []
    assert "only a beat whose `beat_schedule` has this entry" in caplog.text


def test_an_entry_that_cannot_be_sent_stays_due_and_does_not_stop_others(desk: Desk) -> None:
    bad = {"task": "shop.count", "schedule": 9, "options": {"queue": "new"}}
    node = desk.beat(EVERY_TEN | {"bad": bad}, task_create_missing_queues=False)
    desk.advance(10)
    node.tick()
    assert (len(desk.fires("tens")), desk.fires("bad")) == (1, [])
    node.app.amqp.queues.add("new")
    node.tick()
    assert [fire.outcome for fire in desk.fires("bad")] == ["fired"]


def test_a_task_that_is_not_adopted_is_sent_to_the_broker_by_one_node(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def applied(entry: Any, producer: Any = None, advance: bool = True) -> None:
        sent.append(entry.options["task_id"])

    nodes = [desk.beat(EVERY_TEN, adopt=["billing.*"]) for _ in range(2)]
    desk.advance(10)
    for node in nodes:
        node.__dict__["producer"] = None
        monkeypatch.setattr(node, "apply_async", applied)
        node.tick()
    assert len(sent) == 1
    assert desk.crew.count("submitted") == 0
    assert desk.stored("tens").fired_ms


def test_a_task_for_a_broadcast_queue_is_sent_to_the_broker_once(desk: Desk) -> None:
    published: list[Any] = []

    class Producer:
        connection = None

        def publish(self, body: Any, **options: Any) -> None:
            published.append(options["headers"]["task"])

    entry = {"task": "shop.count", "schedule": 10, "options": {"queue": "everyone"}}
    nodes = [desk.beat({"e": entry}, task_queues=(Broadcast("everyone"),)) for _ in range(2)]
    desk.advance(10)
    for node in nodes:
        node.__dict__["producer"] = producer = Producer()
        producer.connection = node.app.connection_for_write()
        node.tick()
    assert published == ["shop.count"]


def test_beat_continues_after_the_store_was_unreachable(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    node = Beat(desk.app(EVERY_TEN))

    def away(*_: Any, **__: Any) -> Any:
        raise RedisConnectionError("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(node.context.adoption.client.blocking), "run", away)
        assert node.tick() == node.tick() == module.AGAIN_S
    assert caplog.text.count("cannot reach the ledger") == 1
    node.tick()
    assert desk.stored("tens").state is ScheduleState.ACTIVE


def test_a_paused_entry_does_not_run_until_it_is_resumed(desk: Desk) -> None:
    node = desk.beat(EVERY_TEN)
    Schedules(desk.crew.client).pause("shop:tens")
    desk.advance(100)
    node.tick()
    desk.beat(EVERY_TEN)
    assert desk.fires("tens") == []
    Schedules(desk.crew.client).resume("shop:tens")
    desk.advance(10)
    node.tick()
    assert len(desk.fires("tens")) == 1


def test_more_entries_than_one_answer_holds_are_all_sent(desk: Desk) -> None:
    node = desk.beat({f"e{n}": {"task": "shop.count", "schedule": timedelta(seconds=10)} for n in range(25)})
    desk.advance(10)
    node.tick()
    assert desk.crew.count("submitted") == 25


def test_an_app_without_relier_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="install"):
        Beat(desk.app(EVERY_TEN, adopt=None))


def test_a_schedule_file_is_ignored_with_a_warning(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    app = desk.app(EVERY_TEN)
    Beat(app, schedule_filename="celerybeat-schedule")
    assert "schedule file" not in caplog.text
    Beat(app, schedule_filename="/var/run/beat")
    assert "/var/run/beat" in caplog.text


def test_the_longest_pause_is_the_one_that_was_asked_for(desk: Desk) -> None:
    node = Beat(desk.app(EVERY_TEN), max_interval=2)
    assert node.tick() == 2
