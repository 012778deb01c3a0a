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

# Quick for tests: a sweep every 50 ms, a cancel heard within a second. Long enough a lease for a busy machine.
QUICK: dict[str, Any] = {"heartbeat_ttl": 3, "resurrection_check_interval": 0.05}
HERE = Path(__file__).parent
QUEUES = ("default", "other", "held")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Native runs every behaviour, prefork the core, the other pools nothing; with --engines all of them all.

    Behaviours of a Celery worker are slow.
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
    """One namespace with one worker that many behaviours share: what they do there must not disturb the others."""
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
    """The common namespace with its worker, and a folder of one's own."""
    (worker,) = common.workers
    assert worker.running, "a behaviour before this one ended the common worker"
    stage = Stage(common.engine, common.settings, tmp_path, common.client)
    use_client(common.client)
    yield stage
    use_client(None)
    stage.go()  # whatever still waits
    stage.let_go("held")


@pytest.fixture
def stage(engine: Engine, settings: Settings, tmp_path: Path) -> Iterator[Stage]:
    """A namespace of one's own, without workers: start_worker() starts some."""
    own = Stage(engine, settings.model_copy(update=QUICK), tmp_path)
    use_client(own.client)
    yield own
    use_client(None)
    own.close()
    for worker in own.workers:
        assert worker.complaints() == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A failure shows what the workers said."""
    report = yield
    if report.failed:
        for name in ("stage", "common"):
            found = getattr(item, "funcargs", {}).get(name)
            for worker in found.workers if found else []:
                said = worker.log.read_text(errors="replace") if worker.log.exists() else ""
                report.sections.append((f"{name}: {worker.log.name}", said[-6000:]))
    return report
