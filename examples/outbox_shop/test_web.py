# test_web.py
import pytest
from fastapi import HTTPException

from shop import Base, engine, pack
from web import place


@pytest.fixture(autouse=True)
def tables():
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)


@pytest.fixture
def relier_outbox_bind():
    return engine  # the fixtures below read through this engine


def test_an_order_is_packed(assert_task_sent, drain_outbox):
    place("tea")
    assert_task_sent(pack, 1)
    (call,) = drain_outbox()
    assert call.run() == "a parcel with tea"


def test_a_refused_order_is_not_packed(assert_task_sent):
    with pytest.raises(HTTPException):
        place("tea", card="bad")
    assert_task_sent(pack, times=0)
