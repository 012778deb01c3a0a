"""The fixtures for tests of tasks, and for tests of an outbox. Nothing is imported or started until one is used.

    relier_pushed                                pushes are recorded: `relier_pushed.assert_pushed(task, …)`
    relier_inline                                tasks run at push
    relier_store                                 an embedded store with a virtual clock: `relier_store.run_pending()`
    outbox, assert_task_sent, drain_outbox       the rows of an outbox

A project configures them with fixtures of its own, in its conftest.py:

    relier_inline_state    what `ctx.state` is in `relier_inline`
    relier_store_settings  a dict of settings for `relier_store`, such as {"heartbeat_ttl": 30}
    relier_outbox          the outbox; by default the only one of the process, or Django's
    relier_outbox_bind     the engine, session or connection of the tests; by default Django's default database
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relier.testing.outbox import OutboxKit, SentTask
    from relier.testing.recording import RecordedPushes
    from relier.testing.virtual.store import VirtualStore


@pytest.fixture
def relier_pushed() -> Iterator[RecordedPushes]:
    """Records every push of the test instead of sending it."""
    from relier.testing.recording import recorded

    with recorded() as pushed:
        yield pushed


@pytest.fixture
def relier_inline_state() -> Any:
    """What `ctx.state` is in `relier_inline`, which enters no lifespan. Override this fixture to provide it."""
    return None


@pytest.fixture
def relier_inline(relier_inline_state: Any) -> Iterator[None]:
    """Runs every task of the test at its push."""
    from relier.testing.inlining import inline

    with inline(state=relier_inline_state):
        yield


@pytest.fixture(scope="session")
def _relier_server() -> Iterator[None]:
    """The embedded server of this process: with pytest-xdist, one for each of its workers."""
    from relier.testing.virtual.store import close_server

    yield
    close_server()


@pytest.fixture
def relier_store_settings() -> dict[str, Any]:
    """Settings of `relier_store` that differ from the environment. Override this fixture to change them."""
    return {}


@pytest.fixture
def relier_store(_relier_server: None, relier_store_settings: dict[str, Any]) -> Iterator[VirtualStore]:
    """A store of this test alone, on an embedded server, with a virtual clock and no worker."""
    from relier.testing.virtual.store import VirtualStore

    with VirtualStore(**relier_store_settings) as store:
        yield store


@pytest.fixture
def relier_outbox() -> Any:
    """The outbox under test. Override this fixture if there are several."""
    from relier.testing.outbox import only_outbox

    return only_outbox()


@pytest.fixture
def relier_outbox_bind() -> Any:
    """Return the engine, session or connection through which the outbox is read.

    Override this fixture, unless the outbox is in Django's default database.
    """
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
