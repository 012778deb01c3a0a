"""Options of adopted tasks: `@app.task(relier={"max_resurrections": 2, "admission": "tenant:{tenant_id}"})`.

The attribute can also be set by `task_annotations`, without touching the code. It is read where the task is sent.
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
KNOWN = ("admission", "admission_weight", "max_resurrections")

# A sweep can bury a task, but not tell Celery's chords and error callbacks. Records of tasks that have some allow so
# many deaths that a sweep always returns them, and carry the real limit on top; the worker that gets one over its limit
# reports its end (working/runner.py). The first number stands for the usual limit, as in records of earlier releases.
TELLS_ITSELF = MOST_RESURRECTIONS + 1
TELLS_ITSELF_AFTER = 1000


class AdoptedOptions:
    """The options of one adopted task."""

    def __init__(self, name: str, given: Mapping[str, Any], run: Any) -> None:
        unknown = set(given) - set(KNOWN)
        if unknown:
            raise ConfigurationError(
                f"task {name}: {ATTRIBUTE} has no option {', '.join(sorted(unknown))} for a Celery task; there are: "
                f"{', '.join(KNOWN)}"
            )
        options = task_options(name, dict(given))
        most = options.max_resurrections
        if most is not None and most > MOST_RESURRECTIONS:
            raise ConfigurationError(f"task {name}: max_resurrections is from 0 to {MOST_RESURRECTIONS}, not {most}")
        self._own_limits = bool(options.admission)
        self._most = most
        self._guards = RlTask(run, options).guards

    def max_resurrections(self, settings: Settings, *, awaited: bool) -> int | None:
        """As its record has it. `awaited`: somebody has to be told if it fails."""
        most = settings.max_resurrections if self._most is None else self._most
        if awaited:
            return TELLS_ITSELF if most == MAX_RESURRECTIONS else TELLS_ITSELF_AFTER + most
        return None if most == MAX_RESURRECTIONS else most

    def admission(self, settings: Settings, call: tuple[Any, Any], task: Submission) -> Admission | None:
        """Its own limits, and those on a queue's depth and on the bytes held. RELIER_ADMISSION_LIMIT has a default, and
        an app that sends more than that in a burst works without Relier; so it is not for adopted tasks."""
        most_bytes = settings.admission_max_bytes
        if not (self._own_limits or settings.admission_max_depth or most_bytes):
            return None
        args, kwargs = call
        load = self._guards.load(settings, [(tuple(args), dict(kwargs))], bytes_held(task) if most_bytes else 0)
        return self._guards.admission(settings.model_copy(update={"admission_limit": 0}), load)


def resurrections_in(stored: int | None) -> int:
    """The limit that a record stands for."""
    if stored is None or stored == TELLS_ITSELF:
        return MAX_RESURRECTIONS
    return stored - TELLS_ITSELF_AFTER if stored >= TELLS_ITSELF_AFTER else stored


_read: WeakKeyDictionary[Any, AdoptedOptions] = WeakKeyDictionary()


def options_of(name: str, task: Any) -> AdoptedOptions:
    """`task`: None where this process knows only its name."""
    if task is None:
        return _no_options(name)
    if task not in _read:
        given = getattr(task, ATTRIBUTE, None) or {}
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"task {name}: {ATTRIBUTE} is a dict of options, not {given!r:.60}")
        _read[task] = AdoptedOptions(name, given, task.run if given else _unknown)
    return _read[task]


@lru_cache
def _no_options(name: str) -> AdoptedOptions:
    return AdoptedOptions(name, {}, _unknown)


def _unknown(*args: Any, **kwargs: Any) -> None: ...
