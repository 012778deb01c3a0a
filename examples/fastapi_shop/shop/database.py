"""The shop's tables. The outbox and the inbox are two of them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from relier.outbox import Outbox, inbox_table


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    item: Mapped[str]
    cents: Mapped[int]
    paid: Mapped[bool] = mapped_column(default=False)


outbox = Outbox(Base.metadata)
inbox_table(Base.metadata)
engine = create_engine("sqlite:///shop.db")
open_session = sessionmaker(engine)


def create_tables() -> None:
    Base.metadata.create_all(engine)


def get_session() -> Iterator[Session]:
    """Provide a session to tasks and to endpoints. Both commit by themselves."""
    with open_session() as session:
        yield session
