"""One Celery app for both sides: as it is, and, if PARITY_ADOPT is set, with the one line that installs Relier.

The worker, the driver and beat import it. Its tasks and signals write notes to a Redis database of the test, by the id
of the task, so that the two sides can be compared.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import Any

import redis
from celery import Celery, Task, chain, chord, group, shared_task, signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from celery.worker.request import Request
from celery.worker.strategy import default

app = Celery("parity", broker=os.environ["PARITY_BROKER"], backend=os.environ["PARITY_BACKEND"])
app.conf.update(
    imports=["tests.support.canvas_tasks"],
    accept_content=["json", "pickle"],
    result_accept_content=["json", "pickle"],
    task_send_sent_event=True,
    task_routes={
        "tests.support.parity_app.routed": {"queue": "side"},
        "tests.support.parity_app.far*": {"queue": "side"},
    },
    task_default_retry_delay=0,
    result_extended=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    beat_schedule={"tick": {"task": "tests.support.parity_app.tick", "schedule": 1.0, "args": ("beat",)}},
)
if os.environ.get("PARITY_ADOPT"):
    from relier.celery import install

    which = os.environ["PARITY_ADOPT"]
    install(app, adopt=True if which == "1" else which.split(","))


@functools.cache
def notes_of(pid: int) -> redis.Redis:
    return redis.Redis.from_url(os.environ["PARITY_NOTES"], decode_responses=True)


def notes() -> redis.Redis:
    """Return the place for all notes: one connection per process."""
    return notes_of(os.getpid())


def note(key: str, text: str) -> None:
    notes().rpush(key, text)


# --- signals ---------------------------------------------------------------------------------------------------------


def on_signal(name: str) -> Any:
    def told(sender: Any = None, **about: Any) -> None:
        request = about.get("request")
        message = about.get("headers") or about.get("body") or {}  # of protocol 1 it is in the body
        task_id = about.get("task_id") or getattr(request, "id", None) or message.get("id")
        words = [name]
        if name == "task_revoked":
            words.append(f"terminated={about['terminated']} expired={about['expired']}")
        if name == "task_postrun":
            words.append(str(about["state"]))
        if name == "task_failure":
            words.append(repr(about["exception"]))
        note(f"{'published' if 'publish' in name else 'signals'}:{task_id}", " ".join(words))

    return told


for each in [
    "before_task_publish",
    "after_task_publish",
    "task_received",
    "task_prerun",
    "task_postrun",
    "task_failure",
    "task_retry",
    "task_revoked",
    "task_rejected",
    "task_unknown",
    "task_internal_error",
]:
    getattr(signals, each).connect(on_signal(each), weak=False)


@signals.task_success.connect(weak=False)
def on_success(sender: Any = None, **_: Any) -> None:
    note(f"signals:{sender.request.id}", "task_success")


# --- tasks: calling ---------------------------------------------------------------------------------------------------


@app.task
def add(x: Any, y: Any) -> Any:
    return x + y


@app.task
def mul(x: Any, y: Any) -> Any:
    return x * y


@app.task
def xsum(numbers: Any) -> Any:
    return sum(numbers)


@app.task
def gather(items: Any) -> Any:
    return items


@app.task
def in_order(items: Any) -> Any:
    return sorted(map(str, items))


@app.task
def count(items: Any) -> int:
    return len(items)


@app.task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@app.task
def tick(who: str) -> None:
    note(f"ticks:{who}", "1")


@app.task(bind=True)
def tell_request(self: Task) -> Any:
    """Return what a task can see of its own request."""
    seen = self.request
    note(f"at:{seen.id}", str(time.time()))
    return {
        "delivery_info": seen.delivery_info,
        "headers": seen.headers,
        "properties": {name: seen.properties.get(name) for name in ("delivery_mode", "expiration", "priority")},
        "retries": seen.retries,
        "eta": seen.eta is not None,
        "expires": seen.expires is not None,
        "timelimit": seen.timelimit,
        "shadow": seen.shadow,
        "called_directly": seen.called_directly,
        "is_eager": seen.is_eager,
        "ignore_result": seen.ignore_result,
        "argsrepr": seen.argsrepr,
        "own root": seen.root_id == seen.id,
        "parent": seen.parent_id,
        "correlation": seen.correlation_id == seen.id,
        "group": seen.group,
        "lang": seen.lang,
        "loglevel": seen.loglevel,
        "stamps": seen.stamps,
        "custom": getattr(seen, "tenant", None),
    }


@app.task
def routed() -> str:
    return "routed"


@app.task(bind=True)
def far_away(self: Task) -> Any:
    return self.request.delivery_info["routing_key"]


@app.task(ignore_result=True)
def forget(key: str) -> int:
    note(key, "ran")
    return 7


@app.task
def fail(why: str = "broken") -> None:
    raise ValueError(why)


class NotedRequest(Request):
    """A request class whose hooks write notes."""

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        note(f"request:{self.id}", "on_accepted")
        super().on_accepted(pid, time_accepted)

    def on_success(self, *args: Any, **kwargs: Any) -> None:
        note(f"request:{self.id}", "on_success")
        super().on_success(*args, **kwargs)

    def on_failure(self, *args: Any, **kwargs: Any) -> None:
        note(f"request:{self.id}", "on_failure")
        super().on_failure(*args, **kwargs)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        note(f"request:{self.id}", f"on_timeout {soft}")
        super().on_timeout(soft, timeout)


class WithRequest(Task):
    abstract = True
    Request = NotedRequest


@app.task(base=WithRequest)
def noted_request(seconds: float = 0.0) -> None:
    time.sleep(seconds)
    raise ValueError("noted")


class WithStrategy(Task):
    """A Strategy of the task's own, as in celery-batches."""

    abstract = True

    def Strategy(self, task: Any, app: Any, consumer: Any) -> Any:  # noqa: N802 - Celery's name
        celerys = default(task, app, consumer)

        def handle(message: Any, *args: Any, **kwargs: Any) -> None:
            note(f"strategy:{message.headers['id']}", "handled")
            celerys(message, *args, **kwargs)

        return handle


@app.task(base=WithStrategy)
def by_strategy(x: Any) -> Any:
    return x


class OddError(Exception):
    """An error that JSON and pickle can rebuild only from its arguments."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code


@app.task
def fail_oddly() -> None:
    raise OddError(3, "odd")


@app.task
def not_json() -> Any:
    return object()


@app.task
def on_error_new(request: Any, exc: Any, traceback: Any) -> str:
    note(f"errback:{request.id}", f"{type(exc).__name__}: {exc}")
    return "told"


@app.task
def on_error_old(task_id: str) -> str:
    note(f"errback:{task_id}", "old style")
    return "told"


@app.task
def note_down(*args: Any, key: str) -> Any:
    note(key, repr(args))
    return args[0] if args else None


@app.task(soft_time_limit=0.2)
def too_slow_soft() -> str:
    try:
        time.sleep(20)
    except SoftTimeLimitExceeded:
        return "cleaned up"
    return "in time"


@app.task
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task(bind=True)
def hold(self: Task, gate: str) -> str:
    """Run until the gate opens."""
    note(f"holding:{gate}", self.request.id)
    notes().blpop([f"gate:{gate}"], 30)
    return "held"


# --- tasks: canvas ----------------------------------------------------------------------------------------------------


@app.task(bind=True)
def fan_out(self: Task, n: int) -> Any:
    """Start a group in the task's body, without waiting for it."""
    return group(add.s(i, i) for i in range(n)).apply_async().id


@app.task(bind=True)
def start_chain(self: Task) -> Any:
    return chain(add.s(1, 2), mul.s(10))().id


@app.task(bind=True)
def become_task(self: Task, x: int) -> Any:
    raise self.replace(add.s(x, 100))


@app.task(bind=True)
def become_chain(self: Task, x: int) -> Any:
    raise self.replace(chain(add.s(x, 1), mul.s(2)))


@app.task(bind=True)
def become_group(self: Task, x: int) -> Any:
    raise self.replace(group(add.s(x, i) for i in range(3)))


@app.task(bind=True)
def become_chord(self: Task, x: int) -> Any:
    raise self.replace(chord([add.s(x, i) for i in range(3)], xsum.s()))


@app.task(bind=True)
def become_twice(self: Task, x: int) -> Any:
    raise self.replace(become_task.s(x + 1000))


@app.task(bind=True)
def become_failing(self: Task) -> Any:
    raise self.replace(fail.s("replaced"))


@app.task(bind=True)
def join_chord(self: Task, x: int) -> Any:
    """Add a member to the chord that this task is in."""
    if x == 1:
        self.add_to_chord(add.s(7, 0))
    return 7


@app.task(ignore_result=True, send_events=False)
def bump(key: str) -> None:
    notes().incr(key)


@app.task(bind=True)
def become_many(self: Task, key: str, n: int) -> Any:
    raise self.replace(group(bump.si(key) for _ in range(n)))


@app.task(bind=True)
def see_stamp(self: Task) -> Any:
    return [self.request.stamped_headers, self.request.stamps]


# --- tasks: retry -----------------------------------------------------------------------------------------------------


@app.task(bind=True, max_retries=3)
def retry_until(self: Task, wanted: int, countdown: float = 0) -> Any:
    if self.request.retries < wanted:
        raise self.retry(countdown=countdown)
    return self.request.retries


@app.task(bind=True, max_retries=3)
def retry_when(self: Task) -> Any:
    """Return how long the only retry took."""
    now = time.time()
    if self.request.retries == 0:
        note(f"began:{self.request.id}", str(now))
        raise self.retry(countdown=1)
    return now - float(notes().lindex(f"began:{self.request.id}", 0)) >= 0.99


@app.task(bind=True, max_retries=5)
def retry_smaller(self: Task, n: int, path: str = "") -> Any:
    if n:
        raise self.retry(args=(n - 1,), kwargs={"path": f"{path}{n}"}, countdown=0)
    return path


@app.task(bind=True, max_retries=2)
def retry_for_ever(self: Task) -> Any:
    note(f"tries:{self.request.id}", str(self.request.retries))
    raise self.retry(countdown=0)


@app.task(bind=True, max_retries=1)
def retry_cause(self: Task) -> Any:
    try:
        dict[str, str]()["cause"]
    except KeyError as error:
        raise self.retry(exc=error, countdown=0) from None


@app.task(bind=True, autoretry_for=(ValueError,), retry_backoff=True, retry_jitter=False, max_retries=1)
def auto_retry(self: Task, wanted: int) -> Any:
    note(f"tries:{self.request.id}", str(self.request.retries))
    if self.request.retries < wanted:
        raise ValueError("again")
    return self.request.retries


@app.task(bind=True, autoretry_for=(Exception,), dont_autoretry_for=(KeyError,), max_retries=2, retry_backoff=0.1)
def auto_retry_not(self: Task) -> Any:
    note(f"tries:{self.request.id}", str(self.request.retries))
    raise KeyError("final")


@app.task(bind=True)
def retry_elsewhere(self: Task) -> Any:
    if self.request.retries == 0:
        raise self.retry(queue="side", countdown=0)
    return [self.request.retries, self.request.delivery_info["routing_key"]]


@app.task(bind=True)
def retry_quietly(self: Task, key: str) -> Any:
    note(key, f"run {self.request.retries}")
    if self.request.retries == 0:
        self.retry(countdown=0, throw=False)
        return "went on"
    return "second"


@app.task(bind=True)
def retry_with_limits(self: Task) -> Any:
    if self.request.retries == 0:
        raise self.retry(countdown=0, time_limit=30, soft_time_limit=20, priority=5, expires=60)
    return [self.request.timelimit, self.request.delivery_info["priority"], self.request.expires is not None]


# --- tasks: the life of one -------------------------------------------------------------------------------------------


@app.task
def ignore_me(key: str) -> None:
    note(key, "ran")
    raise Ignore


@app.task(bind=True)
def ignore_with_state(self: Task) -> None:
    self.update_state(state="SKIPPED", meta={"why": "not today"})
    raise Ignore


@app.task(acks_late=True)
def reject_for_good(key: str) -> None:
    note(key, "ran")
    raise Reject("no", requeue=False)


@app.task
def reject_early() -> None:
    raise Reject("no", requeue=False)


@app.task(bind=True, acks_late=True)
def reject_once(self: Task, key: str) -> str:
    note(key, str(self.request.delivery_info["redelivered"]))
    if notes().llen(key) == 1:
        raise Reject("later", requeue=True)
    return "second"


@app.task(bind=True)
def reject_once_early(self: Task, key: str) -> str:
    note(key, "ran")
    if notes().llen(key) == 1:
        raise Reject("later", requeue=True)
    return "second"


@app.task
def leave(code: int) -> None:
    raise SystemExit(code)


@app.task
def always_dies(key: str) -> None:
    note(key, "ran")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True)
def tell_properties(self: Task) -> Any:
    return sorted(self.request.properties)


@app.task(bind=True)
def progress(self: Task, gate: str) -> str:
    self.update_state(state="PROGRESS", meta={"done": 50})
    note(f"holding:{gate}", self.request.id)
    notes().blpop([f"gate:{gate}"], 30)
    return "all"


class Noted(Task):
    """A task class that notes every handler that Celery calls."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note(f"handlers:{self.request.id}", "called")
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        note(f"handlers:{task_id}", "before_start")

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        note(f"handlers:{task_id}", f"on_success {retval!r}")

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"handlers:{task_id}", f"on_failure {exc!r} {args!r}")

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"handlers:{task_id}", f"on_retry {exc!r}")

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        note(f"handlers:{task_id}", f"after_return {status}")


@app.task(base=Noted, bind=True)
def handled(self: Task, how: str) -> str:
    if how == "fail":
        raise ValueError(how)
    if how == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0)
    return how


@app.task(base=Noted, time_limit=0.5)
def handled_too_long() -> None:
    time.sleep(20)


@app.task(base=Noted)
def sends_after() -> str:
    return "sent"


@app.task
def calls_another(x: int) -> Any:
    """Call another task as a plain function."""
    return add(x, 1) + mul.run(x, 2)


@app.task(bind=True)
def calls_and_goes_on(self: Task, key: str) -> Any:
    """Send a task before and after calling another task as a function: both belong to this task's body."""
    before = forget.delay(key)
    called = add(1, 1)
    after = forget.delay(key)
    return [called, before.id != after.id]


@shared_task(name="tests.support.parity_app.shared")
def shared(x: int) -> int:
    return x + 1


@app.task(rate_limit="60/m")
def rarely(key: str) -> None:
    note(key, "ran")


@app.task
def large(size: int) -> str:
    return "x" * size


@app.task
def lengths(texts: Any) -> Any:
    return [len(text) for text in texts]


@app.task(bind=True)
def lengths_at_last(self: Task, texts: Any) -> Any:
    if not self.request.retries:
        raise self.retry(countdown=0.3)
    return [len(text) for text in texts]


@app.task
def length(text: str) -> int:
    return len(text)


@app.task(rate_limit="4/s")
def limited(key: str) -> None:
    note(key, str(time.time()))


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def dies_once(self: Task, key: str) -> str:
    """Kill the process in the first run."""
    note(key, "ran")
    if notes().llen(key) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@app.task(bind=True, track_started=True)
def tracked(self: Task, gate: str) -> str:
    note(f"holding:{gate}", self.request.id)
    notes().blpop([f"gate:{gate}"], 30)
    return "done"


@app.task(typing=False, name="named.by.hand")
def by_hand(*args: Any) -> Any:
    return list(args)


@app.task(serializer="pickle")
def pickled(value: Any) -> Any:
    return type(value).__name__


@app.task(send_events=False)
def unseen() -> int:
    return 1
