"""Recorded pushes: validated and encoded as usual, but not sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Session

from relier import ConfigurationError, PayloadEncodingError, rl_task, use_middleware
from relier.outbox import Outbox
from relier.submit import push_middleware
from relier.testing import RecordedPushes, recorded

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://127.0.0.1:1")


@rl_task(name="rec.mail", queue="mails")
async def mail(to: str, subject: str = "hello") -> None: ...


@rl_task(name="rec.other")
def other(n: int) -> int:
    return n


def test_pushes_are_recorded_and_found_by_their_arguments(relier_pushed: RecordedPushes) -> None:
    mail.push("ann")
    mail.with_options(delay=60, queue="slow").push(to="bob", subject="hi")
    other.push_many([(1,), {"n": 2}])
    relier_pushed.assert_pushed(mail, "ann", "hello", queue="mails")
    relier_pushed.assert_pushed(mail, to="bob", subject="hi", queue="slow", delay=timedelta(minutes=1))
    relier_pushed.assert_pushed(mail, delay=60)
    relier_pushed.assert_pushed(mail, times=2)
    relier_pushed.assert_pushed(other, n=2)
    relier_pushed.assert_not_pushed(other, 3)
    assert [call.args for call in relier_pushed.calls(mail)] == [("ann",), ()]
    assert len(relier_pushed) == 4


async def test_awaited_pushes_are_recorded_too() -> None:
    with recorded() as pushed:
        receipt = await mail.apush("ann")
        await other.apush_many([(1,), (2,)], task_ids=["a", "b"])
        assert receipt.id
        pushed.assert_pushed(mail, "ann")
        pushed.assert_pushed(other, times=2)
        with pytest.raises(ConfigurationError, match="recorded, not sent"):
            await receipt.result()
        with pytest.raises(ConfigurationError, match=r"inline\(\).*run_pending"):
            await receipt.state()


def test_a_failed_assertion_lists_what_was_pushed() -> None:
    with recorded() as pushed:
        with pytest.raises(AssertionError, match=r"once, but was pushed never\. Pushed: nothing"):
            pushed.assert_pushed(mail)
        mail.with_options(delay=5).push("ann")
        with pytest.raises(AssertionError) as wrong:
            pushed.assert_pushed(mail, "bob", queue="slow")
        assert str(wrong.value) == (
            "rec.mail('bob') to queue slow should have been pushed once, but was pushed never. Pushed:\n"
            "  rec.mail('ann') to queue mails, delay=0:00:05"
        )
        with pytest.raises(AssertionError, match="should have been pushed never, but was pushed once"):
            pushed.assert_not_pushed(mail)


def test_a_push_that_a_store_would_refuse_is_refused() -> None:
    with recorded() as pushed:
        with pytest.raises(PayloadEncodingError):
            mail.push(object())
        with pytest.raises(TypeError, match="missing a required argument"):
            mail.push()
        with pytest.raises(ConfigurationError, match="task_id and idempotency_key are for one task"):
            other.with_options(task_id="one").push_many([(1,), (2,)])
        assert not pushed.all


def test_push_in_is_recorded_and_writes_no_row() -> None:
    class Base(DeclarativeBase): ...

    outbox = Outbox(Base.metadata)
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session, recorded() as pushed:
        receipt = mail.push_in(session, "ann")
        (call,) = pushed.assert_pushed(mail, "ann")
        assert call.in_transaction
        assert call.where is session
        session.commit()
        assert outbox.pending(session) == []
        with pytest.raises(ConfigurationError, match="recorded, not sent"):
            receipt.result()
    engine.dispose()


def test_changes_by_middleware_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rename(call_next: Any, push: Any) -> Any:
        from dataclasses import replace

        return await call_next(replace(push, options=replace(push.options, queue="tenant-1")))

    monkeypatch.setattr(push_middleware, "_for_all_tasks", [])
    use_middleware(push=[rename])
    with recorded() as pushed:
        mail.push("ann")
        pushed.assert_pushed(mail, "ann", queue="tenant-1")
