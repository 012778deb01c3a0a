"""An adopted app with its own broker: one real worker, and this process as the producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relier.settings import Settings
from tests.support.fleet import Fleet, Member
from tests.support.servers import Server

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all of these tests on every version of Celery, and mark those with a real worker as slow."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.smoke)
            if "shop" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)


class Shop:
    """The worker of `celery_shop_app.py`, its fleet, and its broker."""

    def __init__(self, server: Server, namespace: str, folder: Path, broker: Server) -> None:
        settings = Settings(redis_url=server.url, namespace=namespace, heartbeat_ttl=5)
        self.fleet = Fleet(settings, folder)
        self.here = HERE
        self.broker = broker
        self.env = {"SHOP_BROKER": f"{broker.tcp_url}/0", "SHOP_FOLDER": str(folder)}

    def worker(self, *options: str) -> Member:
        command = [
            "-m",
            "celery",
            "-A",
            "tests.support.celery_shop_app",
            "worker",
            "-l",
            "INFO",
            "--without-mingle",
            "--without-gossip",
        ]
        member = self.fleet.python(*command, *(options or ("-c", "2")), cwd=HERE, **self.env)
        member.wait_said(" ready.", 1, 60)
        return member

    def run(self, code: str) -> str:
        """Run code in its own process, because an app has only one broker. Return what the process printed."""
        member = self.fleet.python("-c", f"from tests.support.celery_shop_app import *\n{code}", cwd=HERE, **self.env)
        assert member.wait(60) == 0, member.said()
        return member.said()

    def plain(self, code: str) -> str:
        """Send from a producer without Relier."""
        member = self.fleet.python(
            "-c", f"from tests.support.celery_shop_app import *\n{code}", cwd=HERE, **self.env, SHOP_PLAIN="1"
        )
        assert member.wait(60) == 0, member.said()
        return member.said()

    def rl(self, *arguments: str) -> tuple[int, str]:
        member = self.fleet.python("-m", "relier.cli", *arguments, cwd=HERE, **self.env)
        return member.wait(60), member.said()

    def printed(self) -> list[str]:
        file = self.fleet.folder / "printed"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "broker")
    yield running.start()
    running.kill()


@pytest.fixture
def shop(server: Server, namespace: str, tmp_path: Path, broker: Server) -> Iterator[Shop]:
    made = Shop(server, namespace, tmp_path / "shop", broker)
    try:
        yield made
        made.fleet.check()
    finally:
        made.fleet.close()
