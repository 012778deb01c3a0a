"""Errors of a ledger that is away, for callers of Celery: each is what it was, and kombu's `OperationalError` as well.
So `except` clauses that were written for a broker that is away catch it, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.exceptions import OperationalError

from relier.errors import IndeterminateError, RelierError, StoreError

AWAY = (StoreError, IndeterminateError)


def _family(root: type[RelierError]) -> list[type[RelierError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _family(child))]


# Under their names in this module, so that they can be pickled.
_KINDS = [kind for root in AWAY for kind in _family(root)]
_BOTH = {
    kind: type(kind.__name__, (kind, OperationalError), {"__module__": __name__, "__doc__": kind.__doc__})
    for kind in _KINDS
}
globals().update({kind.__name__: both for kind, both in _BOTH.items()})


@contextmanager
def as_operational_errors() -> Iterator[None]:
    """Whatever says in here that the ledger is away is an `OperationalError`, too."""
    try:
        yield
    except AWAY as error:
        error.__class__ = _BOTH.get(type(error), type(error))
        raise
