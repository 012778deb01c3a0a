"""Read the options of adopted tasks: `@app.task(relier={"max_resurrections": 2, "admission": "tenant:{tenant_id}"})`.

The attribute can also be set by `task_annotations`, without touching the code. The process that sends the task reads
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from relier.errors import ConfigurationError
from relier.ledger.defaults import MAX_RESURRECTIONS
from relier.ledger.records import Admission, Submission
from relier.options import task_options
from relier.settings import MOST_RESURRECTIONS, Settings
from relier.submit.push import bytes_held
from relier.task import RlTask

ATTRIBUTE = "relier"
OPTION_NAMES = ("admission", "admission_weight", "max_resurrections")

# A sweep can bury a task, but cannot call Celery's chords and error callbacks. So the records of tasks that have some
# allow more deaths than any task has, and a sweep always returns these tasks. The worker that gets such a task over its
# real limit reports its end (working/runner.py). The stored number encodes the real limit: REPORTED_BY_WORKER means the
# default, as in records of earlier releases; any other limit is added to REPORTED_BY_WORKER_BASE.
REPORTED_BY_WORKER = MOST_RESURRECTIONS + 1
REPORTED_BY_WORKER_BASE = 1000


class AdoptedOptions:
    """Hold the options of one adopted task."""

    def __init__(self, name: str, given: Mapping[str, Any], run: Any) -> None:
        unknown = set(given) - set(OPTION_NAMES)
        if unknown:
            raise ConfigurationError(
                f"task {name}: {ATTRIBUTE} has no option {', '.join(sorted(unknown))} for a Celery task; use one of "
                f"{', '.join(OPTION_NAMES)}"
            )
        options = task_options(name, dict(given))
        most = options.max_resurrections
        if most is not None and most > MOST_RESURRECTIONS:
            raise ConfigurationError(
                f"task {name}: max_resurrections must be from 0 to {MOST_RESURRECTIONS}, not {most}"
            )
        self._own_limits = bool(options.admission)
        self._max_resurrections = most
        self._guards = RlTask(run, options).guards

    def max_resurrections(self, settings: Settings, *, failure_awaited: bool) -> int | None:
        """Return the limit as the record stores it.

        `failure_awaited`: a chord or error callbacks wait for a failure.
        """
        most = settings.max_resurrections if self._max_resurrections is None else self._max_resurrections
        if failure_awaited:
            return REPORTED_BY_WORKER if most == MAX_RESURRECTIONS else REPORTED_BY_WORKER_BASE + most
        return None if most == MAX_RESURRECTIONS else most

    def admission(self, settings: Settings, call: tuple[Any, Any], task: Submission) -> Admission | None:
        """Return the limits that the task must pass: its own, and those on queue depth and stored bytes.

        RELIER_ADMISSION_LIMIT does not apply to adopted tasks: it has a default, and would refuse bursts that the app
        could send without Relier.
        """
        most_bytes = settings.admission_max_bytes
        if not (self._own_limits or settings.admission_max_depth or most_bytes):
            return None
        args, kwargs = call
        load = self._guards.load(settings, [(tuple(args), dict(kwargs))], bytes_held(task) if most_bytes else 0)
        return self._guards.admission(settings.replace(admission_limit=0), load)


def max_resurrections_in(stored: int | None) -> int:
    """Return the real limit that a stored number encodes."""
    if stored is None or stored == REPORTED_BY_WORKER:
        return MAX_RESURRECTIONS
    return stored - REPORTED_BY_WORKER_BASE if stored >= REPORTED_BY_WORKER_BASE else stored


_options: WeakKeyDictionary[Any, AdoptedOptions] = WeakKeyDictionary()


def options_of(name: str, task: Any) -> AdoptedOptions:
    """Return the options of a task. `task` is None if this process knows only its name."""
    if task is None:
        return _no_options(name)
    if task not in _options:
        given = getattr(task, ATTRIBUTE, None) or {}
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"task {name}: {ATTRIBUTE} must be a dict of options, not {given!r:.60}")
        _options[task] = AdoptedOptions(name, given, task.run if given else _unknown_body)
    return _options[task]


@lru_cache
def _no_options(name: str) -> AdoptedOptions:
    return AdoptedOptions(name, {}, _unknown_body)


def _unknown_body(*args: Any, **kwargs: Any) -> None: ...
