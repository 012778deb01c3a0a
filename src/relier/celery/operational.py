"""Raise errors of an unavailable ledger also as kombu's `OperationalError`.

So `except` clauses that were written for an unavailable broker catch them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.exceptions import OperationalError

from relier.errors import IndeterminateError, RelierError, StoreError

UNAVAILABLE = (StoreError, IndeterminateError)


def _with_subclasses(root: type[RelierError]) -> list[type[RelierError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _with_subclasses(child))]


# The classes are attributes of this module, so that they can be pickled.
_KINDS = [kind for root in UNAVAILABLE for kind in _with_subclasses(root)]
_AS_OPERATIONAL = {
    kind: type(kind.__name__, (kind, OperationalError), {"__module__": __name__, "__doc__": kind.__doc__})
    for kind in _KINDS
}
globals().update({kind.__name__: combined for kind, combined in _AS_OPERATIONAL.items()})


@contextmanager
def as_operational_errors() -> Iterator[None]:
    """Let code catch errors about an unavailable ledger as Celery's `OperationalError`, if the block raises them."""
    try:
        yield
    except UNAVAILABLE as error:
        error.__class__ = _AS_OPERATIONAL.get(type(error), type(error))
        raise
