"""A stage for each behaviour, on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relier import Settings, use_client
from tests.support.conformance import tasks  # noqa: F401 - so that test and worker know the same tasks
from tests.support.conformance.engine import ENGINES, Engine, Native
from tests.support.conformance.stage import Stage
from tests.support.servers import Server

# Quick for tests: a sweep every 50 ms, and a cancellation within a second. The lease is long enough for a busy machine.
QUICK: dict[str, Any] = {"heartbeat_ttl": 3, "resurrection_check_interval": 0.05}
HERE = Path(__file__).parent
QUEUES = ("default", "other", "held")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The native engine runs every behaviour, prefork the core, other pools none; with --engines, all of them run all.

    Behaviours of a Celery worker are marked as slow.
    """
    for item in items:
        if item.path.parent == HERE and _engine_of(item) != Native.name:
            item.add_marker(pytest.mark.slow)
    if config.getoption("--engines"):
        return
    left = {item for item in items if _is_for_later(item)}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def _engine_of(item: pytest.Item) -> str:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return getattr(params.get("engine"), "name", "")


def _is_for_later(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    share = getattr(params.get("engine"), "share", "all")
    return share == "none" or (share == "core" and item.get_closest_marker("core") is None)


@pytest.fixture(scope="session", params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture(scope="session")
def common(engine: Engine, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A namespace with one worker, which many tests share. A test must not do anything there that disturbs the
    others."""
    settings = Settings(redis_url=server.url, namespace=f"common-{engine.name}", **QUICK)
    stage = Stage(engine, settings, tmp_path_factory.mktemp("common"))
    worker = stage.start_worker(queues=QUEUES)
    yield stage
    worker.stop()
    code = worker.exit_code()
    stage.close()
    assert code == engine.clean
    assert worker.complaints() == []


@pytest.fixture
def shared(common: Stage, tmp_path: Path) -> Iterator[Stage]:
    """The shared namespace with its worker, and a folder for this test alone."""
    (worker,) = common.workers
    assert worker.running, "a behaviour before this one ended the common worker"
    stage = Stage(common.engine, common.settings, tmp_path, common.client)
    use_client(common.client)
    yield stage
    use_client(None)
    stage.go()  # end everything that still waits
    stage.let_go("held")


@pytest.fixture
def stage(engine: Engine, settings: Settings, tmp_path: Path) -> Iterator[Stage]:
    """A namespace for this test alone, without workers. `start_worker()` starts some."""
    own = Stage(engine, settings.replace(**QUICK), tmp_path)
    use_client(own.client)
    yield own
    use_client(None)
    own.close()
    for worker in own.workers:
        assert worker.complaints() == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show the log of the workers with a failure."""
    report = yield
    if report.failed:
        for name in ("stage", "common"):
            found = getattr(item, "funcargs", {}).get(name)
            for worker in found.workers if found else []:
                said = worker.log.read_text(errors="replace") if worker.log.exists() else ""
                report.sections.append((f"{name}: {worker.log.name}", said[-6000:]))
    return report
