# shop.py
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from relier import TaskContext, rl_task
from relier.outbox import Outbox, inbox_table


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


class Parcel(Base):
    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]


outbox = Outbox(Base.metadata)  # the table relier_outbox
inbox_table(Base.metadata)  # the table relier_inbox
engine = create_engine("sqlite:///shop.db")
open_session = sessionmaker(engine)


@rl_task
def pack(ctx: TaskContext, order_id: int) -> str:
    with open_session() as session, ctx.exactly_once(session) as mark:
        order = session.get_one(Order, order_id)
        session.add(Parcel(order_id=order.id))
        mark.result = f"a parcel with {order.item}"
    return mark.result
