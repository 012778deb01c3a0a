"""The fixtures for users' tests, used as users do: in their own project, on SQLite, without a relay or a store."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SHOP = """
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from relier import TaskContext, rl_task
from relier.outbox import Outbox, inbox_table

class Base(DeclarativeBase): ...

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)

outbox = Outbox(Base.metadata)
inbox_table(Base.metadata)
engine = create_engine("sqlite:///shop.db")
ran = []

@rl_task
def pay(order: int, cents: int = 100) -> str:
    ran.append(("pay", order, cents))
    with Session(engine) as session, session.begin():
        mail.push_in(session, order, to=("ann", "bob"))
    return "paid"

@rl_task(queue="slow")
async def mail(order: int, to: tuple[str, ...]) -> None:
    ran.append(("mail", order, to))

@rl_task
def pack(order: int, ctx: TaskContext) -> str:
    with Session(engine) as session, ctx.exactly_once(session) as mark:
        session.add(Order(id=order))
        mark.result = ctx.step_sync("label", str, order)
    return mark.result
"""

CONFTEST = """
import pytest
import shop

@pytest.fixture(autouse=True)
def tables():
    shop.ran.clear()
    shop.Base.metadata.drop_all(shop.engine)
    shop.Base.metadata.create_all(shop.engine)
    yield
    shop.engine.dispose()
"""

ENGINE = """
@pytest.fixture
def relier_outbox_bind():
    return shop.engine
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose store cannot be reached, so that any use of it fails."""
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio")  # pytest-asyncio warns unless it is configured
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    pytester.makepyfile(shop=SHOP)
    return pytester


def passes(project: pytest.Pytester, conftest: str, text: str) -> str:
    project.makeconftest(CONFTEST + conftest)
    project.makepyfile(text)
    done = project.runpytest_subprocess("-p", "no:relier", "-p", "relier.testing.plugin", "-p", "anyio", "-Werror")
    told = done.stdout.str()
    assert done.ret == 0, told
    return told


def test_sent_calls_are_listed_drained_and_run(project: pytest.Pytester) -> None:
    passes(
        project,
        ENGINE,
        """
        import pytest
        from shop import Order, Session, engine, mail, pack, pay, ran
        import shop

        @pytest.fixture
        def placed():
            with Session(engine) as session, session.begin():
                return [pay.push_in(session, 1).id, pay.with_options(queue="vip", delay=60).push_in(session, 2, 5).id]

        def test_the_outbox_is_the_users(outbox):
            assert outbox is shop.outbox

        def test_sent(placed, assert_task_sent):
            (first,) = assert_task_sent(pay, 1)
            assert first.id == placed[0]
            assert_task_sent(pay, order=1, cents=100)
            assert_task_sent(pay, 2, 5, queue="vip")
            assert_task_sent(pay, 2, 5, queue="default", times=0)
            assert_task_sent(pay, times=2)
            assert_task_sent(mail, times=0)

        def test_not_sent(placed, assert_task_sent):
            with pytest.raises(AssertionError) as told:
                assert_task_sent(pay, 3)
            assert str(told.value) == (
                "shop.pay(3) should be in the outbox once, but was found 0 times. There is:\\n"
                "  shop.pay(1) for queue default\\n"
                "  shop.pay(2, 5) for queue vip"
            )

        def test_nothing_at_all(assert_task_sent):
            with pytest.raises(AssertionError, match="There is: nothing"):
                assert_task_sent(pay)

        def test_rolled_back(assert_task_sent):
            with Session(engine) as session:
                pay.push_in(session, 1)
                session.rollback()
            assert_task_sent(pay, times=0)

        def test_taken(placed, drain_outbox, assert_task_sent):
            calls = drain_outbox()
            assert [(call.id, call.args) for call in calls] == [(placed[0], (1,)), (placed[1], (2, 5))]
            assert ran == []
            assert drain_outbox() == []
            assert calls[1].run() == "paid"
            assert_task_sent(mail, 2, ("ann", "bob"), queue="slow")

        def test_run(placed, drain_outbox):
            assert [call.name for call in drain_outbox(run=True)] == ["shop.pay"] * 2 + ["shop.mail"] * 2
            assert ran == [("pay", 1, 100), ("pay", 2, 5), ("mail", 1, ("ann", "bob")), ("mail", 2, ("ann", "bob"))]

        def test_a_context(drain_outbox):
            with Session(engine) as session, session.begin():
                pack.push_in(session, 7)
            (call,) = drain_outbox(run=True)
            assert call.run() == "7"  # the mark is there: it ran once
            with Session(engine) as session:
                assert session.query(Order).count() == 1

        def test_what_a_task_raises_is_raised(drain_outbox):
            with Session(engine) as session, session.begin():
                pay.push_in(session, "no number")
            shop.ran = None
            try:
                with pytest.raises(AttributeError):
                    drain_outbox(run=True)
            finally:
                shop.ran = ran
        """,
    )


def test_a_session_sees_uncommitted_rows(project: pytest.Pytester) -> None:
    passes(
        project,
        """
@pytest.fixture
def session(tables):
    with shop.engine.connect() as connection:
        outer = connection.begin()
        with shop.Session(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        outer.rollback()

@pytest.fixture
def relier_outbox_bind(session):
    return session
""",
        """
        from shop import Order, pay

        def test_pending_then_written_then_taken(session, assert_task_sent, drain_outbox):
            session.add(Order(id=1))
            pay.push_in(session, 1)
            assert_task_sent(pay, 1)
            assert drain_outbox() == []
            session.commit()
            assert_task_sent(pay, 1)
            assert len(drain_outbox()) == 1
            assert_task_sent(pay, times=0)
            assert session.get(Order, 1) is not None

        def test_the_next_test_sees_nothing(assert_task_sent):
            assert_task_sent(pay, times=0)
        """,
    )


def test_the_kit_works_with_async_engines_and_tests(project: pytest.Pytester) -> None:
    passes(
        project,
        """
from sqlalchemy.ext.asyncio import create_async_engine

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def relier_outbox_bind(anyio_backend):
    engine = create_async_engine("sqlite+aiosqlite:///shop.db")
    yield engine
    await engine.dispose()
""",
        """
        import pytest
        from shop import mail, ran
        from sqlalchemy.ext.asyncio import AsyncSession

        @pytest.mark.anyio
        async def test_async(relier_outbox_bind, assert_task_sent, drain_outbox):
            async with AsyncSession(relier_outbox_bind) as session, session.begin():
                await mail.apush_in(session, 1, ("ann",))
                await mail.apush_in(session, 2, ("ann",))
            assert_task_sent(mail, times=2)
            first, second = drain_outbox()
            await first.arun()
            second.run()
            assert [one[1] for one in ran] == [1, 2]
        """,
    )


def test_the_kit_works_with_django(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
import django
import pytest
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["relier.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}},
)
django.setup()

from django.core.management import call_command
from django.db import connections

@pytest.fixture(autouse=True)
def tables():
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()
"""
    )
    project.makepyfile(
        """
        from django.db import transaction
        from relier import rl_task

        @rl_task(name="pay")
        def pay(order: int) -> str:
            return f"{order} paid"

        def test_it(outbox, assert_task_sent, drain_outbox):
            with transaction.atomic():
                pay.push_in("default", 1)
                assert_task_sent(pay, 1)
                outbox.add(None, pay, 2)
            assert_task_sent(pay, times=2)
            assert [call.run() for call in drain_outbox()] == ["1 paid", "2 paid"]
            assert_task_sent(pay, times=0)
        """
    )
    done = project.runpytest_subprocess("-p", "no:relier", "-p", "relier.testing.plugin", "-Werror")
    assert done.ret == 0, done.stdout.str()


def test_without_a_bind_the_error_says_what_to_do(project: pytest.Pytester) -> None:
    project.makeconftest(CONFTEST)
    project.makepyfile("def test_it(drain_outbox): ...")
    done = project.runpytest_subprocess("-p", "no:relier", "-p", "relier.testing.plugin")
    done.stdout.fnmatch_lines(["*ConfigurationError: *define a fixture `relier_outbox_bind`*"])


def test_without_pytest_a_block_opens_the_outbox(project: pytest.Pytester) -> None:
    passes(
        project,
        "",
        """
        import pytest
        from relier import ConfigurationError
        from relier.testing import open_outbox
        from shop import Session, engine, pay, ran

        def test_it():
            with open_outbox(engine) as rows:
                with Session(engine) as session, session.begin():
                    pay.push_in(session, 1)
                rows.assert_sent(pay, 1)
                assert [call.name for call in rows.drain(run=True)] == ["shop.pay", "shop.mail"]
            assert [name for name, *_ in ran] == ["pay", "mail"]
            with pytest.raises(ConfigurationError, match="pass it to `open_outbox`"), open_outbox():
                pass
        """,
    )


def test_celery_messages_are_read_too(project: pytest.Pytester) -> None:
    passes(
        project,
        ENGINE,
        """
        from celery import Celery
        from relier.celery import install
        from relier.celery.outbox import send_through
        from shop import Session, engine, outbox as box

        plain = send_through(Celery("plain", broker="memory://"), box)
        adopted = Celery("adopted", broker="memory://", set_as_current=False)
        install(adopted, adopt=True, outbox=box)

        @plain.task(name="plain.add")
        def add(x, y): ...

        @adopted.task(name="adopted.add")
        def more(x, y): ...

        def test_it(outbox, assert_task_sent, drain_outbox):
            with Session(engine) as session, session.begin(), outbox.using(session):
                add.delay(1, y=2)
                more.delay(3, y=4)
            assert_task_sent(add, 1, y=2)
            assert_task_sent(more, 3, y=4)
            first, second = drain_outbox()
            assert (first.args, first.kwargs, first.name) == ((1,), {"y": 2}, "plain.add")
            assert (second.args, second.kwargs, second.name) == ((3,), {"y": 4}, "adopted.add")
        """,
    )


def test_the_plugin_costs_nothing_and_is_found() -> None:
    heavy = "celery", "django", "msgspec", "sqlalchemy"
    code = f"import relier.testing.plugin, sys; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"relier": "relier.testing.plugin"}
