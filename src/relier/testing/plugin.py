"""The fixtures `outbox`, `assert_task_sent` and `drain_outbox`.

A project configures them with two fixtures of its own, in its conftest.py:

    relier_outbox         the outbox; by default the only one of the process, or Django's
    relier_outbox_bind    the engine, session or connection of the tests; by default Django's default database
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relier.testing.outbox import OutboxKit, SentTask


@pytest.fixture
def relier_outbox() -> Any:
    """The outbox under test. Override this fixture if there are several."""
    from relier.testing.outbox import only_outbox

    return only_outbox()


@pytest.fixture
def relier_outbox_bind() -> Any:
    """The engine, session or connection that reads the outbox. Override it, unless it is Django's default database."""
    from relier.testing.outbox import default_bind

    return default_bind()


@pytest.fixture
def outbox(relier_outbox: Any) -> Iterator[Any]:
    """The outbox of the application. Commits wake no relay during the test."""
    from relier.outbox.wake.doorbell import muted

    with muted():
        yield relier_outbox


@pytest.fixture
def _relier_kit(outbox: Any, relier_outbox_bind: Any) -> OutboxKit:
    from relier.testing.outbox import OutboxKit

    return OutboxKit(outbox, relier_outbox_bind)


@pytest.fixture
def assert_task_sent(_relier_kit: OutboxKit) -> Callable[..., list[SentTask]]:
    """Check the outbox: `assert_task_sent(task, *args, queue=None, times=1, **kwargs)`."""
    return _relier_kit.assert_sent


@pytest.fixture
def drain_outbox(_relier_kit: OutboxKit) -> Callable[..., list[SentTask]]:
    """Empty the outbox: `drain_outbox(run=False)`."""
    return _relier_kit.drain
