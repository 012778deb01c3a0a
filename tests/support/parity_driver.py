"""A process that uses the app as a user would: it runs scenarios by name and reports their results.

Meanwhile it listens to the workers' events. The tasks of a scenario are those that it published itself and all their
descendants (`root_id`). Each is reported under a label that is the same on both sides: its name and arguments, without
ids. Each request and each answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from celery import VERSION, signals
from celery.events import EventReceiver
from celery.result import AsyncResult

from tests.support import parity_scenarios, random_canvases
from tests.support.parity_app import app, notes
from tests.support.random_canvases import SHAPES, canvas_of

if VERSION < (5, 5):  # collected amid a read, it waits for a lock of redis-py's that its own thread holds
    del AsyncResult.__del__

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KEY = re.compile(r"k[0-9a-f]{32}")
ENDS = {"task-succeeded", "task-failed", "task-revoked"}
FIELDS = {  # what is reported of an event besides its type
    "task-received": ("retries",),
    "task-succeeded": ("result",),
    "task-failed": ("exception",),
    "task-retried": ("exception",),
    "task-revoked": ("terminated", "signum", "expired"),
}


def struck(value: Any) -> Any:
    """Return the text without ids, which differ between runs."""
    return KEY.sub("<key>", ID.sub("<id>", value)) if isinstance(value, str) else value


class Listener(EventReceiver):
    """Keeps every task event, by task."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, handlers={"*": self.keep}, app=app)
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.listens = threading.Event()

    def on_consume_ready(self, *args: Any, **kwargs: Any) -> None:
        self.listens.set()

    def keep(self, event: dict[str, Any]) -> None:
        if "uuid" in event:
            self.events.setdefault(event["uuid"], []).append(event)

    def run_for_ever(self) -> None:
        self.capture(limit=None, timeout=None, wakeup=False)

    def of_roots(self, roots: set[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the events of these tasks and of their descendants."""
        found = {}
        for task_id, events in list(self.events.items()):
            if task_id in roots or any(event.get("root_id") in roots for event in list(events)):
                found[task_id] = list(events)
        return found


class Stage:
    """What a scenario works with: the app, the place of the notes, and timeouts."""

    def __init__(self, listener: Listener) -> None:
        self.app = app
        self.roots: set[str] = set()
        self.listener = listener
        self.outcome: Callable[[], Any] | None = None  # what came of it by now, where that may change

    def wait(self, holds: Callable[[], Any], what: str = "", seconds: float = 20.0) -> Any:
        pause, until = threading.Event(), time.monotonic() + seconds
        while not (value := holds()):
            if time.monotonic() > until:
                raise AssertionError(f"{what or 'the condition'} did not come about within {seconds} s")
            pause.wait(0.01)
        return value

    def told(self, result: Any) -> list[Any]:
        """Return how a task ended: its state, and what it returned or raised."""
        value = result.get(timeout=20, propagate=False)
        return [result.state, struck(repr(value)) if isinstance(value, BaseException) else value]

    def noted(self, key: str, times: int = 0) -> list[str]:
        """Return the notes under a key, once there are `times`."""
        if times:
            self.wait(lambda: notes().llen(key) >= times, f"{times} × {key}")
        return list(notes().lrange(key, 0, -1))

    def open_gate(self, name: str, times: int = 1) -> None:
        notes().rpush(f"gate:{name}", *["open"] * times)

    def event_types(self, task_id: str) -> list[str]:
        return [event["type"] for event in self.listener.events.get(task_id, ())]

    # --- what is compared ----------------------------------------------------------------------------------------

    def ended(self) -> int:
        told = self.listener.of_roots(self.roots)
        return sum(any(event["type"] in ENDS for event in events) for events in told.values())

    def quiet(self) -> bool:
        """Return whether every task that began has ended."""
        return all(map(self._is_over, self.listener.of_roots(self.roots).items()))

    def still(self, seconds: float) -> bool:
        """Return whether no task runs, and there has been no event for this long."""
        told = self.listener.of_roots(self.roots).values()
        last = max((event["timestamp"] for events in told for event in events), default=time.time())
        waits = any(events[-1]["type"] == "task-retried" for events in told)
        return last < time.time() - seconds and not waits and self.quiet()

    @staticmethod
    def _is_over(told: tuple[str, list[dict[str, Any]]]) -> bool:
        task_id, events = told
        heard = notes().lrange(f"signals:{task_id}", 0, -1)
        over = sum(each.startswith("task_postrun") for each in heard)
        killed = sum(event["type"] in ("task-rejected", "task-failed", "task-revoked") for event in events)
        return heard.count("task_prerun") <= over + killed

    def again(self) -> dict[str, Any]:
        return {"story": self.story()} | ({"value": self.outcome()} if self.outcome else {})

    def story(self) -> list[Any]:
        """Return every task of the scenario: its label, its events, its signals."""
        return sorted(
            (self._told_of(task_id, events) for task_id, events in self.listener.of_roots(self.roots).items()),
            key=json.dumps,
        )

    def _told_of(self, task_id: str, events: list[dict[str, Any]]) -> list[Any]:
        about: dict[str, Any] = {}
        for event in sorted(events, key=lambda event: event["type"] != "task-received"):
            about = {name: event[name] for name in ("name", "args", "kwargs") if name in event} | about
        label = struck(f"{about.get('name')}{about.get('args')}{about.get('kwargs')}")
        sent = sum(event["type"] == "task-sent" for event in events)
        by_worker = [self._event(event) for event in events if event["type"] != "task-sent"]
        signals_ = [struck(each) for each in notes().lrange(f"signals:{task_id}", 0, -1)]
        if sum(told[0] == "task-received" for told in by_worker) > 1:
            # Plain Celery sends the next run before it reports the end of this one, so their order is random.
            by_worker, signals_ = sorted(by_worker), sorted(signals_)
        if any(told[:2] == ["task-revoked", "True"] for told in by_worker):
            signals_ = sorted(signals_)  # those of the worker and of the process it ends
        published = sorted(notes().lrange(f"published:{task_id}", 0, -1))
        return [label, {"sent": sent, "events": by_worker, "signals": signals_, "published": published}]

    @staticmethod
    def _event(event: dict[str, Any]) -> list[Any]:
        fields = [struck(str(event.get(name))) for name in FIELDS.get(event["type"], ())]
        return [event["type"], *fields]


def scenario_of(name: str) -> parity_scenarios.Scenario:
    """Return a scenario by its name. `canvas 7` is the random canvas with seed 7."""
    kind, _, seed = name.partition(" ")
    if kind != "canvas" and name not in SHAPES:
        return parity_scenarios.SCENARIOS[name]

    def play(stage: Stage) -> Any:
        return random_canvases.play(canvas_of(int(seed)) if kind == "canvas" else SHAPES[name](), stage)

    return parity_scenarios.Scenario(play, 0, parity_scenarios.ANY)


class Driver:
    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._stages: dict[str, Stage] = {}

    def answer(self, ask: dict[str, Any]) -> dict[str, Any]:
        return self.run(ask["name"]) if ask["do"] == "run" else self._stages[ask["name"]].again()

    def run(self, name: str) -> dict[str, Any]:
        scenario = scenario_of(name)
        stage = self._stages[name] = Stage(self._listener)

        def published(headers: Any = None, body: Any = None, **_: Any) -> None:
            stage.roots.add(headers["id"] if "id" in headers else body["id"])

        signals.before_task_publish.connect(published, weak=False)
        try:
            value = json.loads(json.dumps(scenario.play(stage)))
            stage.wait(lambda: stage.ended() >= scenario.ends, f"{scenario.ends} ends", 15)
            stage.wait(stage.quiet, "quiet", 15)
            expected = scenario.value
            foreseen = scenario.alone or not os.environ.get("PARITY_ADOPT")
            if expected is not parity_scenarios.ANY and foreseen:
                assert value == expected, f"{value!r} was not foreseen"
        except Exception:  # noqa: BLE001 - whatever it is, it is told
            return {"error": traceback.format_exc(), "story": stage.story()}
        finally:
            signals.before_task_publish.disconnect(published)
        return {"value": value, "story": stage.story(), "ids": sorted(stage.roots)}


def main() -> None:
    listener = Listener(app.connection_for_read())
    threading.Thread(target=listener.run_for_ever, daemon=True).start()
    assert listener.listens.wait(30)
    driver = Driver(listener)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(driver.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
