"""Shared fixtures: one real server per session, a namespace per test, and both stores on it.

Mark async tests with `anyio`. Tests of other packages override `scripts`.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from relier import trace as traces
from relier.run.application import middleware
from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore
from relier.submit import push_middleware
from tests.support import PYTHONPATH
from tests.support.servers import FLAVOURS, Boot, Server

pytest_plugins = ["tests.support.database_fixtures"]
_numbers = itertools.count()
os.environ["PYTHONPATH"] = PYTHONPATH  # of the processes that tests start


def hear_signals() -> None:
    """Shells ignore SIGINT for commands that a script starts with `&`, and so do some CI runners. All their child
    processes inherit that. Tests that send signals need the default."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    for number, default in defaults.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


hear_signals()
gc.disable()  # until all tests are collected


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the collected tests, some 10,000, out of every garbage collection. That nearly halves what collecting them
    costs each test process, and each collection of a test afterwards looks at that test's own objects only."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Show the collected tests to the garbage collector again: Hypothesis, whose pytest plugin may import it only now,
    asks the collector who refers to an object."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="run on every supported server, not only the embedded one")
    parser.addoption("--other-servers", action="store_true", help="run on every supported server but the embedded one")
    parser.addoption("--engines", action="store_true", help="run every behaviour on every engine, not only the core")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = set()
    if not config.getoption("--engines"):
        left |= {item for item in items if item.get_closest_marker("engines") is not None}
    if config.getoption("--other-servers"):
        left |= {item for item in items if "flavour" not in getattr(item, "fixturenames", ())}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flavour" in metafunc.fixturenames:
        config = metafunc.config
        first = int(config.getoption("--other-servers"))
        last = len(FLAVOURS) if first or config.getoption("--matrix") else 1
        metafunc.parametrize("flavour", FLAVOURS[first:last], indirect=True, scope="session")


@pytest.fixture(autouse=True)
def _only_its_own_middleware() -> Iterator[None]:
    """Remove the middleware and the tracing that a test, or a module it imported, added for all tasks."""
    run, push, spans = list(middleware._for_all_tasks), list(push_middleware._for_all_tasks), traces.spans
    yield
    middleware._for_all_tasks[:], push_middleware._for_all_tasks[:], traces.spans = run, push, spans


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def flavour(request: pytest.FixtureRequest) -> str:
    """The server to test with: the embedded one or, with --matrix, each in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's server. Tests share it, and each uses its own namespace. A test that needs another server boots
    one."""
    running = Server(tmp_path_factory.mktemp("srv"), flavour)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Boot]:
    """Start servers for one test: boot(flavour=…, config={…}, sentinel="…", start=True). All end with the test."""
    running: list[Server] = []

    def start_one(
        flavour: str = "valkey-9.1", config: Mapping[str, str] | None = None, sentinel: str = "", start: bool = True
    ) -> Server:
        one = Server(tmp_path / f"s{len(running)}", flavour, config, sentinel)
        running.append(one)
        return one.start() if start else one

    yield start_one
    for one in reversed(running):
        one.kill()


@pytest.fixture
def namespace() -> str:
    return f"test{next(_numbers)}"


@pytest.fixture
def settings(server: Server, namespace: str) -> Settings:
    return Settings(redis_url=server.url, namespace=namespace)


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    """Toy scripts for the store's own tests."""
    return Scripts(Path(__file__).parent / "support" / "toy_lua", {})


@pytest.fixture
async def store(settings: Settings, scripts: Scripts) -> AsyncIterator[AsyncStore]:
    async with AsyncStore(settings, scripts) as opened:
        yield opened


@pytest.fixture
def sync_store(settings: Settings, scripts: Scripts) -> Iterator[SyncStore]:
    with SyncStore(settings, scripts) as opened:
        yield opened
