"""Recognise methods and options of other task queues, which people write from habit, and name ours instead."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from relier.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

PUSHES = "push(…), or `await apush(…)` in async code"
FOLLOWS = "task.s(…), in a chain, group or batch"
OTHER_METHODS = {
    "delay": PUSHES,
    "send": PUSHES,
    "enqueue": PUSHES,
    "kiq": PUSHES,
    "defer": PUSHES,
    "apply_async": "with_options(delay=…, queue=…).push(…), with the arguments in push",
    "apply": "the task itself: calling it runs the function here and now",
    "signature": FOLLOWS,
    "retry": "@rl_task(retries=…), and raise an exception to be retried",
    "AsyncResult": "receipt(task_id) or sync_receipt(task_id)",
}
OTHER_TASK_OPTIONS = {
    "bind": "a task that takes ctx: TaskContext gets its context",
    "ignore_result": "return None to store no result",
    "acks_late": "leave it out: a task whose worker dies always runs again; on_lost changes that",
    "max_retries": "use retries=…",
    "autoretry_for": "use retries=Retries(retry_on=…)",
    "retry_backoff": "use retries=Retries(backoff=…, factor=…)",
    "default_retry_delay": "use retries=Retries(backoff=…, factor=1)",
    "time_limit": "use hard_timeout=…",
    "soft_time_limit": "use soft_timeout=…",
    "rate_limit": "use limits=Limit(rate=…), which counts over all workers",
    "serializer": "leave it out: arguments are stored as JSON",
    "countdown": "the delay belongs to a push: task.with_options(delay=…).push(…)",
    "delay": "the delay belongs to a push: task.with_options(delay=…).push(…)",
    "eta": "the time belongs to a push: task.with_options(eta=…).push(…)",
    "expires": "the expiry belongs to a push: task.with_options(expires=…).push(…)",
}
OTHER_PUSH_OPTIONS = {
    "countdown": "use delay=…",
    "args": "pass the arguments to push: task.with_options(…).push(…)",
    "kwargs": "pass the arguments to push: task.with_options(…).push(…)",
    "link": "use chain(first.s(…), next.s())",
    "link_error": "push a task where you handle the error, or use on_dead=…",
    "retries": "it belongs to the task: @rl_task(retries=…)",
    "time_limit": "it belongs to the task: @rl_task(hard_timeout=…)",
    "soft_time_limit": "it belongs to the task: @rl_task(soft_timeout=…)",
}


def no_attribute(task: str, name: str) -> AttributeError:
    """Return the error for an attribute that a task does not have."""
    advice = f": use {OTHER_METHODS[name]}" if name in OTHER_METHODS else ""
    return AttributeError(f"{task} is an rl_task and has no {name!r}{advice}")


def refuse_other_options(task: str, given: Iterable[str]) -> None:
    """Raise ConfigurationError if `@rl_task` was given an option of another queue."""
    for option in given:
        if option in OTHER_TASK_OPTIONS:
            raise ConfigurationError(f"task {task}: there is no option {option!r}; {OTHER_TASK_OPTIONS[option]}")


def refuse_unknown(method: F) -> F:
    """Decorate `with_options`: the error for an unknown option says what to use."""
    known = [name for name in inspect.signature(method).parameters if name != "self"]

    @functools.wraps(method)
    def with_known(task: Any, **given: Any) -> Any:
        for option in given:
            if option not in known:
                close = get_close_matches(option, known, 1)
                meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
                advice = OTHER_PUSH_OPTIONS.get(option, meant)
                raise TypeError(f"with_options() has no option {option!r}: {advice}; nothing was pushed")
        return method(task, **given)

    return cast(F, with_known)
