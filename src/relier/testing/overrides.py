"""Replace a dependency or the lifespan inside a block: `with relier.testing.override(get_session, fake_session):`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from relier.arguments.dependencies import overrides

_NONE: Any = object()


@contextmanager
def override(provider: Callable[..., Any], replacement: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, use `replacement` wherever a task has `Depends(provider)`.

    The replacement may be of a different kind: a plain function for an async generator, for instance. A `provider` that
    is the lifespan is replaced when `run_pending` enters it; that replacement must be a lifespan too.
    """
    before = overrides.get(provider, _NONE)
    overrides[provider] = replacement
    try:
        yield
    finally:
        if before is _NONE:
            del overrides[provider]
        else:
            overrides[provider] = before
