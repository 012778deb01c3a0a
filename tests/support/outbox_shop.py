"""A shop whose orders and tasks commit together: tables, an outbox, tasks, and relays that tests drive by hand."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest
from sqlalchemy import BigInteger, Engine, Integer, MetaData, create_engine, event, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from relier import Client, Settings, rl_task, use_client
from relier.ledger.records import new_task_id
from relier.outbox.publish.target import LedgerTarget, Outcome
from relier.outbox.push import forget_outbox
from relier.outbox.relay.options import RelayOptions
from relier.outbox.relay.relay import Relay
from relier.outbox.row import NewRow
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.sqlalchemy.outbox import Outbox
from relier.states import State


@rl_task(name="shop.receipt")
def receipt(order: int, note: str = "") -> int:
    return order


@rl_task(name="shop.unique", idempotency_key="order:{order}")
def unique(order: int) -> int:
    return order


def engine_of(url: str) -> Engine:
    """Return an engine. SQLite's driver begins transactions too late for savepoints, so this follows SQLAlchemy's
    manual."""
    return listen_to_sqlite(create_engine(url))


def listen_to_sqlite(engine: Engine) -> Engine:
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def failing() -> Any:
    """Expect the ZeroDivisionError with which a body ends its transaction."""
    return contextlib.suppress(ZeroDivisionError)


class Shop:
    """One database with an outbox, and one ledger."""

    def __init__(self, url: str, client: Client) -> None:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Order(Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(
                BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
            )

        self._relays: list[Relay] = []
        self.client = client
        self.order: Any = Order
        self.metadata = Base.metadata
        self.outbox = Outbox(Base.metadata, wake=False)
        self.engine = engine_of(url)
        Base.metadata.create_all(self.engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for relay in self._relays:
            relay.close()
        forget_outbox(self.outbox)
        self.engine.dispose()

    def session(self) -> Session:
        return Session(self.engine)

    def place(self, *orders: int) -> list[str]:
        """Place orders and their tasks in one transaction. Return the ids of the tasks."""
        with self.session() as session, session.begin():
            session.add_all(self.order(id=order) for order in orders)
            return [self.outbox.add(session, receipt, order).id for order in orders]

    def rows(self) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(self.outbox.table).order_by(self.outbox.table.c.id)))

    def count(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(self.outbox.table)).scalar_one())

    def write(self, *rows: NewRow) -> None:
        with self.engine.begin() as connection:
            self.outbox.insert(connection, rows)

    def change(self, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(self.outbox.table.update().values(**values))

    def relay(self, *targets: Any, clock: Any = None, **options: Any) -> Relay:
        """Return a relay that the test drives by hand. It is no member, and no bell wakes it."""
        more = {} if clock is None else {"clock": clock}
        chosen = targets or [LedgerTarget(Client(self.client.settings))]
        relay = Relay(EngineDatabase(self.engine), chosen, RelayOptions(**options), **more)
        self._relays.append(relay)
        return relay

    def state(self, task_id: str) -> State:
        return self.client.run(self.client.ledger.get(task_id)).record.state

    def accepted(self) -> int:
        return self.client.run(self.client.ledger.stats()).counts.get("submitted", 0)


class Scripted:
    """A target whose outcome the test chooses for each row."""

    kind = "ledger"
    chunk_size = 1

    def __init__(self, *plan: Any, expect: int = 0) -> None:
        self.plan = list(plan)  # an Outcome, or a function of the row that makes one; the last one stays
        self.seen: list[str] = []
        self.expect = expect
        self.all_seen = threading.Event()

    def publish(self, rows: Any) -> list[Outcome]:
        return [self._one(row) for row in rows]

    def _one(self, row: Any) -> Outcome:
        self.seen.append(row.task_id)
        if len(self.seen) == self.expect:
            self.all_seen.set()
        step = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        outcome: Outcome = step(row) if callable(step) else step
        return outcome

    def close(self) -> None: ...


class Takes(Scripted):
    """A target that takes many rows in one call."""

    chunk_size = 1000


def row(key: str = "") -> NewRow:
    """Return a row that only a scripted target accepts."""
    return NewRow(new_task_id(), "ledger", "n", "q", key, b"x" * 200)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    """The ledger of the test, without limits except those that a test sets itself."""
    own = Client(settings.replace(admission_limit=0))
    use_client(own)
    yield own
    use_client(None)
    own.close()
