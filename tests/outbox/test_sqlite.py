"""The engine that docs/how-to/outbox.md creates for SQLite: writers wait for their turn, and none is refused."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from relier.outbox.publish.target import Sent
from relier.outbox.push import forget_outbox
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import database_of
from tests.support.doc_pages import steps_of
from tests.support.outbox_shop import Scripted

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "outbox.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The first module that the page shows."""
    step = next(step for step in steps_of(PAGE) if step.file == "shop.py")
    file = tmp_path / "shop_of_the_page.py"
    file.write_text(step.lines[0])
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.outbox._doorbell = None  # there is no store
    module.Base.metadata.create_all(module.engine)
    yield module
    forget_outbox(module.outbox)
    module.engine.dispose()


def place(page: Any, order: int) -> None:
    """Read before writing. SQLite refuses the write if the transaction did not begin as a write transaction."""
    with Session(page.engine) as session, session.begin():
        session.execute(select(func.count()).select_from(page.Order)).scalar_one()
        session.add(page.Order(id=order))
        session.flush()
        page.pack.push_in(session, order)


def test_no_producer_is_refused_beside_relays(page: Any) -> None:
    failures: list[BaseException] = []
    target = Scripted(Sent(), expect=80)
    url = f"sqlite:///{page.engine.url.database}"
    relays = [Relay(database_of(url), [target], RelayOptions(idle_time=0.05)) for _ in range(2)]

    def produce(first: int) -> None:
        for order in range(first, first + 20):
            try:
                place(page, order)
            except OperationalError as error:
                failures.append(error)

    threads = [threading.Thread(target=relay.run) for relay in relays]
    threads += [threading.Thread(target=produce, args=(first,)) for first in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads[2:]:
            thread.join(60)
        assert failures == []
        assert target.all_seen.wait(30)
    finally:
        for relay, thread in zip(relays, threads, strict=False):
            relay.stop()
            thread.join(30)
    assert sorted(target.seen) == sorted(set(target.seen))
