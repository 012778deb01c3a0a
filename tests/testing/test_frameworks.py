"""The testing kit in users' projects: pytest-asyncio, anyio, unittest, Django's TestCase and pytest-xdist."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SHOP = """
from relier import Retries, TaskContext, rl_task

charged = []

def charge_card(order: int) -> str:
    charged.append(order)
    return f"tx-{order}"

@rl_task(retries=Retries(attempts=1, backoff=3600, max_backoff=3600, jitter=0))
async def fulfil(ctx: TaskContext, order: int) -> str:
    paid = await ctx.step("charge", charge_card, order)
    if not ctx.metadata["retries"]:
        raise ConnectionError("mail server away")
    mail.push(order)
    return paid

@rl_task(queue="mails")
def mail(order: int) -> int:
    return order
"""

ASYNC = """
import shop
from relier.testing import arun_pending, context, kill_after_step

async def test_run_pending(relier_store):
    receipt = await shop.fulfil.apush(42)
    outcomes = [each.outcome for each in await arun_pending(kill_after_step("charge"))]
    assert outcomes == ["killed", "retried", "done", "done"]
    assert await receipt.result() == "tx-42"
    assert shop.charged == [42]

async def test_recorded(relier_pushed):
    receipt = await shop.mail.apush(1)
    relier_pushed.assert_pushed(shop.mail, 1, queue="mails")

async def test_inline(relier_inline):
    assert await (await shop.fulfil.apush(7)).result() == "tx-7"

async def test_context(relier_pushed):
    async with context(retries=1, steps={"charge": "tx-0"}):
        assert await shop.fulfil(9) == "tx-0"
    relier_pushed.assert_pushed(shop.mail, 9)
"""

UNITTEST = """
import unittest
import shop
from relier.testing import arun_pending, context, inline, kill_after_step, recorded, run_pending, store

class Awaited(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        await self.enterAsyncContext(store())

    async def test_run_pending(self):
        receipt = await shop.fulfil.apush(42)
        outcomes = [each.outcome for each in await arun_pending(kill_after_step("charge"))]
        self.assertEqual(outcomes, ["killed", "retried", "done", "done"])
        self.assertEqual(await receipt.result(), "tx-42")

    async def test_context(self):
        with recorded() as pushed:
            async with context(retries=1):
                self.assertEqual(await shop.fulfil(9), "tx-9")
            pushed.assert_pushed(shop.mail, 9)

class Blocking(unittest.TestCase):
    def test_run_pending(self):
        self.enterContext(store())
        receipt = shop.mail.with_options(delay=60).push(1)
        self.assertEqual(len(run_pending()), 1)
        self.assertEqual(receipt.result(), 1)

    def test_inline(self):
        with inline():
            self.assertEqual(shop.fulfil.push(7).result(), "tx-7")
"""


DJANGO = """
import contextlib
from django.contrib.contenttypes.models import ContentType
from django.test import TestCase
from django.db import transaction
from relier import ExactlyOnceError, TaskContext, rl_task
from relier.testing import inline, open_outbox, run_pending, store

@rl_task
def count() -> int:
    return ContentType.objects.filter(app_label="shop").count()

@rl_task
def add(ctx: TaskContext, model: str) -> str:
    with ctx.exactly_once("default") as mark:
        ContentType.objects.create(app_label="shop", model=model)
        mark.result = model
    return model

@rl_task
def add_with_more(ctx: TaskContext, model: str, fails: bool) -> str:
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        result = add.fn(ctx, model)
        1 / (not fails)
    return result

class Counting(TestCase):
    def setUp(self):
        ContentType.objects.create(app_label="shop", model="order")

    def test_run_pending(self):
        self.enterContext(store())
        receipt = count.with_options(delay=60).push()
        run_pending()
        self.assertEqual(receipt.result(), 1)

    def test_inline(self):
        self.enterContext(inline())
        self.assertEqual(count.push().result(), 1)

    def test_exactly_once(self):
        # the transaction of the TestCase never commits; that of the task has ended all the same
        self.enterContext(store())
        first, second = add.push("pot"), add_with_more.push("cup", fails=False)
        third = add_with_more.push("pan", fails=True)
        self.assertEqual([each.outcome for each in run_pending()], ["done", "done", "dead"])
        self.assertEqual((first.result(), second.result(), count()), ("pot", "cup", 3))
        with self.assertRaisesRegex(ExactlyOnceError, "is rolled back|is open"):
            third.result()

    def test_outbox(self):
        rows = self.enterContext(open_outbox())
        with transaction.atomic():
            add.push_in("default", "pot")
            rows.assert_sent(add, "pot")
        (call,) = rows.drain()
        self.assertEqual([call.run(), call.run(), count()], ["pot", "pot", 2])
        self.assertEqual(rows.drain(run=True), [])
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """A project whose own store cannot be reached. The servers that its tests start must leave nothing behind."""
    monkeypatch.setenv("RELIER_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio")  # pytest-asyncio warns unless it is configured
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(shop=SHOP)
    with tempfile.TemporaryDirectory(prefix="rlt-") as temporary:  # a short path: sockets have to fit
        monkeypatch.setenv("TMPDIR", temporary)
        yield pytester
        assert not [*Path(temporary).glob("relier-*")]


def passes(project: pytest.Pytester, passed: int, *options: str) -> str:
    """Run the project's tests, with every warning an error."""
    done = project.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *options)
    done.assert_outcomes(passed=passed)
    return done.stdout.str()


@pytest.mark.skipif(find_spec("pytest_asyncio") is None and "CI" not in os.environ, reason="pytest-asyncio is missing")
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_the_kit_works_with_pytest_asyncio(
    project: pytest.Pytester, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS")
    marked = "import pytest\npytestmark = pytest.mark.asyncio\n" if mode == "strict" else ""
    project.makepyfile(test_shop=marked + ASYNC)
    passes(project, 4, f"--asyncio-mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function")


@pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_the_kit_works_with_anyio(project: pytest.Pytester, uvloop: bool) -> None:
    backend = f'("asyncio", {{"use_uvloop": {uvloop}}})'
    marked = f"import pytest\npytestmark = pytest.mark.anyio\n@pytest.fixture\ndef anyio_backend(): return {backend}\n"
    project.makepyfile(test_shop=marked + ASYNC)
    passes(project, 4)


def test_the_kit_works_with_unittest(project: pytest.Pytester) -> None:
    project.makepyfile(test_shop=UNITTEST)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unittest", "test_shop"],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 4 tests" in done.stderr


def test_tasks_see_what_a_test_case_of_django_has_not_committed(project: pytest.Pytester) -> None:
    project.makepyfile(
        conf="""
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        INSTALLED_APPS = ["django.contrib.contenttypes", "relier.django"]
        """,
        test_shop=DJANGO,
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "test", "--settings", "conf", "test_shop"],
        cwd=project.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 4 tests" in done.stderr


def test_xdist_gives_each_of_its_workers_a_server(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_shop="""
        import os, pathlib, pytest, shop
        from relier.testing import run_pending

        @pytest.mark.parametrize("n", range(6))
        def test_one(relier_store, n):
            receipt = shop.mail.with_options(delay=3600).push(n)
            assert [each.args for each in run_pending()] == [(n,)]
            settings = relier_store.client.settings
            place = f"{os.environ['PYTEST_XDIST_WORKER']} {settings.redis_url} {settings.namespace}"
            pathlib.Path(f"place-{n}").write_text(place)
        """
    )
    passes(project, 6, "-n", "2", "--dist", "load")
    places = [Path(project.path / f"place-{n}").read_text().split() for n in range(6)]
    assert len({worker for worker, _, _ in places}) == len({url for _, url, _ in places}) == 2
    assert len({namespace for _, _, namespace in places}) == 6


def test_a_project_that_uses_no_fixture_pays_for_none(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_shop="""
        import sys

        def test_nothing():
            assert not [name for name in sys.modules if name.startswith("relier") and name not in LIGHT]

        LIGHT = {"relier", "relier.version", "relier.testing", "relier.testing.plugin"}
        """
    )
    passes(project, 1)
