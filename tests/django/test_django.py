"""The outbox of a Django project, on each database: tasks pushed in an `atomic` block are sent if and only if it
commits."""

from __future__ import annotations

import asyncio
import html
import io
import json
import os
import re
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Iterator

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from celery import Celery
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections, transaction
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils.translation import gettext_lazy
from sqlalchemy import MetaData, create_engine

from relier import Client, ConfigurationError, OutsideTransactionError, use_client
from relier.celery.outbox import send_through
from relier.django.checks import tables_of
from relier.django.database import DjangoDatabase, translated
from relier.django.models import InboxMark, OutboxRow
from relier.django.outbox import outbox
from relier.django.shown import payload_of
from relier.errors import PayloadEncodingError, RedisConnectionError
from relier.outbox.inbox.exactly_once import AlreadyRan, ExactlyOnce
from relier.outbox.publish.target import LedgerTarget, Outage, SendFailed
from relier.outbox.push import forget_outbox
from relier.outbox.relay.relay import Relay
from relier.outbox.row import NewRow
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.sqlalchemy.outbox import Outbox as SqlAlchemyOutbox
from relier.outbox.table.statements import DeadRowFilter, OutboxTable
from relier.settings import get_settings
from relier.states import State
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop, LogEntry, Order, Permission, User
from tests.support.outbox_shop import Scripted, failing, receipt, unique


@pytest.fixture
def project(database: Database, client: Client) -> Iterator[DjangoShop]:
    """A project with two databases of the same kind, without tables."""
    second = database.server.fresh()
    with DjangoShop(client, default=database.url, second=second.url) as made:
        yield made
    second.drop()


@pytest.fixture
def shop(project: DjangoShop) -> DjangoShop:
    return project.make_tables()


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Order(id=1), r"django_shop\.Order is a Django model, whose row may change .*: pass value\.pk, and load it"),
        (Order.objects.none(), r"QuerySet is a query, not its rows: pass list\(value\.values_list\('pk', flat=True"),
        (gettext_lazy("hello"), r"is evaluated later, perhaps to another text: pass str\(value\)"),
    ],
)
def test_a_value_of_django_is_refused_with_the_line_that_fixes_it(value: object, message: str) -> None:
    with pytest.raises(PayloadEncodingError, match=rf"argument 'order': .*{message}"):
        receipt.arguments.encode((value,), {})


# --- writing ---------------------------------------------------------------------------------------------------------


def place(order: int, alias: str = "default") -> str:
    with transaction.atomic(using=alias):
        Order.objects.using(alias).create(id=order)
        return receipt.push_in(alias, order).id


def test_committed_rows_exist_and_rolled_back_rows_do_not(shop: DjangoShop) -> None:
    one = place(1)
    with failing(), transaction.atomic():
        Order.objects.create(id=2)
        receipt.push_in(None, 2)
        raise ZeroDivisionError
    with transaction.atomic():
        other = receipt.push_in(connection, 3).id
        third = outbox.add(connections["default"], receipt, 4).id
    assert shop.ids() == [one, other, third]
    assert shop.orders() == [1]
    assert {row.name for row in shop.rows()} == {"shop.receipt"}


def test_rolling_back_a_savepoint_removes_its_rows(shop: DjangoShop) -> None:
    with transaction.atomic():
        outer = receipt.push_in(None, 1).id
        with failing(), transaction.atomic():
            receipt.push_in(None, 2)
            raise ZeroDivisionError
        with transaction.atomic():
            inner = receipt.push_in(None, 3).id
            with failing(), transaction.atomic():
                receipt.push_in(None, 4)
                raise ZeroDivisionError
        by_hand = connection.savepoint()
        receipt.push_in(None, 5)
        connection.savepoint_rollback(by_hand)
        last = receipt.push_in(None, 6).id
    assert shop.ids() == [outer, inner, last]


def test_a_released_savepoint_rolls_back_with_its_outer_transaction(shop: DjangoShop) -> None:
    with failing(), transaction.atomic():
        with transaction.atomic():
            receipt.push_in(None, 1)
        raise ZeroDivisionError
    assert shop.ids() == []


def test_each_database_has_its_own_rows(shop: DjangoShop) -> None:
    with transaction.atomic(using="second"):
        second = receipt.push_in("second", 1).id
        with pytest.raises(OutsideTransactionError, match="'default'"):
            receipt.push_in(None, 2)
        with failing(), transaction.atomic():
            receipt.push_in(None, 3)
            raise ZeroDivisionError
    assert (shop.ids(), shop.ids("second")) == ([], [second])
    assert shop.relay().drain() == 0
    assert shop.relay(alias="second").drain() == 1
    assert shop.state(second) is State.QUEUED


def test_a_write_is_one_insert(shop: DjangoShop) -> None:
    rows = [NewRow(f"t{n}", "ledger", "shop.receipt", "default", "", b"x") for n in range(50)]
    with transaction.atomic(), CaptureQueriesContext(connection) as seen:
        outbox.write(None, rows)
    assert len([one for one in seen if "relier_outbox" in one["sql"]]) == 1
    assert shop.ids() == [row.task_id for row in rows]


def test_times_are_the_databases(shop: DjangoShop) -> None:
    place(1)
    (row,) = shop.rows()
    with DjangoDatabase().begin() as tx:
        (seen,) = OutboxTable(connection.vendor, "relier_outbox").claim(tx, "boot", 10, 1000, None)
    assert row.created_at == row.due_at
    assert 0 <= seen.age_ms < 60_000
    assert (row.claims, row.retries, row.dead, row.leased_by, row.order_key) == (0, 0, 0, "", "")


def test_async_code_writes_on_the_connection_of_the_surrounding_transaction(shop: DjangoShop) -> None:
    """As in an async view that Django runs under ATOMIC_REQUESTS, and in an asyncio task that the view starts."""
    made: list[str] = []

    async def view(order: int) -> None:
        made.append((await receipt.apush_in(None, order)).id)
        made.append((await outbox.aadd("default", receipt, order)).id)

    with transaction.atomic():
        async_to_sync(view)(1)
    with failing(), transaction.atomic():
        async_to_sync(view)(2)
        raise ZeroDivisionError

    async def alone() -> None:
        async with ThreadSensitiveContext():  # as for each request
            with pytest.raises(OutsideTransactionError):
                await receipt.apush_in(None, 3)
            atomic = transaction.atomic()
            await sync_to_async(atomic.__enter__)()
            made.append((await receipt.apush_in(None, 4)).id)
            await sync_to_async(atomic.__exit__)(None, None, None)
            made.append(await sync_to_async(place)(5))
            await sync_to_async(connections.close_all)()

    asyncio.run(alone())
    assert shop.ids() == [*made[:2], *made[4:]]


def test_strict_mode_refuses_a_push_that_would_commit_by_itself(shop: DjangoShop) -> None:
    with pytest.raises(OutsideTransactionError, match=re.escape("transaction.atomic(using='default')")):
        receipt.push_in(None, 1)
    assert shop.ids() == []
    with override_settings(RELIER_OUTBOX_STRICT=False):
        one = receipt.push_in(None, 1).id
    assert shop.ids() == [one]


def test_strict_mode_refuses_a_push_after_sqlite_has_ended_the_transaction(sqlite: Database, client: Client) -> None:
    """From then on, each statement commits on its own, and the end of `atomic` cannot undo it."""
    with DjangoShop(client, default=sqlite.url) as shop:
        shop.make_tables()
        Order.objects.create(id=0)
        with failing(), transaction.atomic():
            receipt.push_in("default", 1)
            with connection.cursor() as cursor, pytest.raises(IntegrityError):
                cursor.execute("INSERT OR ROLLBACK INTO shop_order (id) VALUES (0)")
            with pytest.raises(OutsideTransactionError, match="ended the transaction"):
                receipt.push_in("default", 2)
            raise ZeroDivisionError
        assert shop.rows() == []


def test_a_manually_managed_transaction_is_accepted(shop: DjangoShop) -> None:
    transaction.set_autocommit(False)
    receipt.push_in(None, 1)
    transaction.rollback()
    kept = receipt.push_in(None, 2).id
    transaction.commit()
    transaction.set_autocommit(True)
    assert shop.ids() == [kept]


def test_an_invalid_database_is_refused(shop: DjangoShop) -> None:
    with transaction.atomic():
        with pytest.raises(ConfigurationError, match="'default', 'second'"):
            receipt.push_in("third", 1)
        with pytest.raises(ConfigurationError, match="alias of a Django database"):
            receipt.push_in(Order(id=1), 1)
        other = connections["default"].copy()
        with pytest.raises(ConfigurationError, match="belongs to another thread"):
            receipt.push_in(other, 1)
    assert shop.ids() == []


def test_a_commit_rings_once(shop: DjangoShop) -> None:
    """This does not depend on the number of rows, nor on whether the savepoint with the first row is rolled back."""

    def planned() -> int:
        return len(connection.run_on_commit)

    with override_settings(RELIER_OUTBOX_WAKE=True), transaction.atomic():
        with failing(), transaction.atomic():
            receipt.push_in(None, 1)
            assert planned() == 1
            raise ZeroDivisionError
        assert planned() == 0
        with transaction.atomic():
            receipt.push_in(None, 2)
        receipt.push_in(None, 3)
        assert planned() == 1
        with failing(), transaction.atomic():
            receipt.push_in(None, 4)
            raise ZeroDivisionError
        assert planned() == 1
    assert hears(shop.client, shop.client.ledger.outbox_bell)


@override_settings(RELIER_OUTBOX_WAKE=True)
def test_a_doorbell_ring_that_fails_does_not_affect_the_commit(shop: DjangoShop, client: Client) -> None:
    use_client(Client(client.settings.replace(redis_url="redis://127.0.0.1:1/0", redis_deadline=0.1)))
    place(1)
    use_client(client)
    place(2)
    assert shop.orders() == [1, 2]
    assert hears(client, client.ledger.outbox_bell)


def hears(client: Client, bell: str) -> bool:
    return any(client.sync_store.wait_for_bell([bell], 1) for _ in range(30))


# --- the relay -------------------------------------------------------------------------------------------------------


def test_committed_rows_become_records_under_their_ids(shop: DjangoShop) -> None:
    ids = [place(order) for order in range(30)]
    with transaction.atomic():
        unique.push_in(None, 1)
        unique.push_in(None, 1)
    assert shop.relay(batch_size=7).drain() == 32
    assert shop.ids() == []
    assert all(shop.state(one) is State.QUEUED for one in ids)
    assert shop.client.run(shop.client.ledger.stats()).counts["submitted"] == 31


def test_outages_deferrals_poison_and_order_work_on_djangos_connections(shop: DjangoShop) -> None:
    with transaction.atomic():
        for order in (1, 2):
            receipt.with_options(order_key="a").push_in(None, order)
    ordered = shop.relay(Scripted(SendFailed(ValueError("100% poison"))), ordered=True, max_retries=0)
    ordered.drain()
    first, second = shop.rows()
    assert (first.dead, second.dead) == (1, 1)
    assert "100% poison" in first.error
    rows, database = OutboxTable(connection.vendor, "relier_outbox"), DjangoDatabase()
    with database.begin() as tx:
        assert rows.count_dead(tx, DeadRowFilter(name="shop.receipt")) == 2
        assert rows.replay(tx, DeadRowFilter(task_id=first.task_id)) == 1
        assert rows.purge(tx, DeadRowFilter(task_id=second.task_id)) == 1
        assert rows.depth(tx).waiting == 1
        assert rows.body(tx, first.id) == bytes(first.body)
    away = shop.relay(Scripted(Outage(RedisConnectionError("away"))))
    assert away.drain() == 0
    assert away.counts.outages == 1


def test_relays_skip_rows_that_others_have_locked(shop: DjangoShop, database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("on SQLite relays take turns")
    ids = [place(order) for order in range(4)]
    rows = OutboxTable(connection.vendor, "relier_outbox")
    claimed: list[str] = []

    def other() -> None:
        database = DjangoDatabase()
        with database.begin() as tx:
            claimed.extend(row.task_id for row in rows.claim(tx, "two", 10, 1000, None))
        database.close()

    with DjangoDatabase().begin() as tx:
        assert [row.task_id for row in rows.claim(tx, "one", 2, 1000, None)] == ids[:2]
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
        assert claimed == ids[2:]


def test_a_relay_survives_a_lost_connection(shop: DjangoShop, database: Database) -> None:
    if database.kind == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    relay = shop.relay()
    place(1)
    assert relay.drain() == 1
    place(2)
    database.kill_connections()
    with pytest.raises(Exception, match=r"(?i)clos|terminat|lost|gone|timeout|server"):
        relay.drain()
    assert relay.drain() == 1


def test_a_connection_is_kept_between_polls(shop: DjangoShop) -> None:
    """CONN_MAX_AGE is 0 by default, which is meant for requests."""
    database, seen = DjangoDatabase(), set()
    for _ in range(3):
        with database.begin() as tx:
            tx.run("SELECT 1", {})
            seen.add(id(connection.connection))
    assert len(seen) == 1


def test_on_mysql_a_relay_reads_only_committed_rows(mariadb: Database, client: Client) -> None:
    with DjangoShop(client, default=mariadb.url) as shop:
        shop.make_tables()
        connection.close()
        connection.settings_dict["OPTIONS"]["isolation_level"] = "repeatable read"
        with DjangoDatabase().begin() as tx:
            tx.run("SELECT count(*) FROM relier_outbox", {})
            kind = "SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = :id"
            (own,) = tx.run("SELECT connection_id()", {})[0]
            assert tx.run(kind, {"id": own}) == (("READ COMMITTED",),)


def test_on_postgresql_a_relay_has_an_isolation_level_of_its_own(postgres: Database, client: Client) -> None:
    """This holds even if the server has another default level."""
    postgres.server.execute(f"ALTER DATABASE {postgres.name} SET default_transaction_isolation = 'serializable'")
    with DjangoShop(client, default=postgres.url) as shop:
        shop.make_tables()
        with DjangoDatabase().begin() as tx:
            assert tx.run("SHOW transaction_isolation", {})[0][0] == "read committed"


def test_statements_are_translated() -> None:
    assert translated("a = :a AND b LIKE '%x' AND c::int = :b_2") == "a = %(a)s AND b LIKE '%%x' AND c::int = %(b_2)s"


@pytest.mark.parametrize("command", ["relier_relay", "celery_outbox_relay"])
def test_the_command_sends_until_it_is_told_to_stop(shop: DjangoShop, command: str, tmp_path) -> None:
    """The signal arrives once the task exists. The relay closes the row, and ends."""
    one = place(1)
    alive, said = tmp_path / "alive", io.StringIO()

    def stop_when_sent() -> None:
        hears(shop.client, shop.client.ledger.bell("default"))
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_when_sent)
    watcher.start()
    call_command(command, stdout=said, liveness_file=str(alive), batch_size=10)
    watcher.join()
    assert alive.exists()
    assert shop.ids() == []
    assert shop.state(one) is State.QUEUED
    assert "Relay stopped: 1 sent, 0 failed, 0 dead." in said.getvalue()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_command_reports_options_that_it_cannot_use(project: DjangoShop) -> None:
    with pytest.raises(CommandError, match=r"relier_outbox: it does not exist.*migrate --database default"):
        call_command("relier_relay")
    project.make_tables()
    with pytest.raises(CommandError, match="batch_size must be at least 1"):
        call_command("relier_relay", "--batch-size", "0")
    with (
        socket.create_server(("0.0.0.0", 0)) as taken,
        pytest.raises(CommandError, match=r"metrics cannot be served on port \d+: Address already in use"),
    ):
        call_command("relier_relay", "--metrics-port", str(taken.getsockname()[1]))
    with pytest.raises(CommandError, match="DATABASES has no 'third'"):
        call_command("relier_relay", "--database", "third")


# --- Celery ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def celery_app() -> Iterator[Celery]:
    app = send_through(Celery("shop", broker="memory://", set_as_current=False), outbox)
    app.conf.task_default_queue = f"mails-{uuid.uuid4()}"

    @app.task(name="shop.mail", shared=False)
    def mail(to: str, note: str = "") -> None: ...

    yield app
    app.close()


def sent_to(app: Celery) -> int:
    with app.connection_for_read() as broker, broker.SimpleQueue(app.conf.task_default_queue) as queue:
        return int(queue.qsize())


def test_a_celery_task_sent_inside_atomic_is_a_row_of_that_transaction(shop: DjangoShop, celery_app: Celery) -> None:
    mail = celery_app.tasks["shop.mail"]
    mail.delay("before")
    assert sent_to(celery_app) == 1
    with failing(), transaction.atomic():
        mail.delay("nobody")
        raise ZeroDivisionError
    with transaction.atomic():
        one = mail.delay("ann", note="x").id
        with transaction.atomic(using="second"):  # what is open on the default database counts
            two = mail.apply_async(["bob"], countdown=60).id
    with transaction.atomic(using="second"):
        three = mail.delay("cid").id
    assert (shop.ids(), shop.ids("second")) == ([one, two], [three])
    assert {row.kind for row in shop.rows()} == {"celery"}
    assert json.loads(payload_of(shop.rows()[0]))[:2] == [["ann"], {"note": "x"}]
    assert sent_to(celery_app) == 1


def test_a_message_joins_the_one_open_transaction(sqlite: Database, client: Client) -> None:
    urls = {alias: sqlite.server.fresh().url for alias in ("default", "second", "third")}
    with DjangoShop(client, **urls):
        assert outbox.current() is None
        with outbox.using("second"), transaction.atomic():
            assert outbox.current() == "second"
        both = transaction.atomic(using="second"), transaction.atomic(using="third")
        with both[0], both[1], pytest.raises(ConfigurationError, match="open on 'second', 'third'"):
            outbox.current()


class NotDefault:
    """A router that keeps the outbox out of the default database."""

    def allow_migrate(self, db: str, app_label: str, **_: object) -> bool | None:
        return db != "default" if app_label == "relier" else None


def test_a_database_without_the_outbox_takes_no_messages(sqlite: Database, client: Client) -> None:
    urls = {alias: sqlite.server.fresh().url for alias in ("default", "second")}
    with DjangoShop(client, **urls), override_settings(DATABASE_ROUTERS=[NotDefault()]), transaction.atomic():
        assert outbox.current() is None
        with transaction.atomic(using="second"):
            assert outbox.current() == "second"


# --- the tables ------------------------------------------------------------------------------------------------------


def test_the_migrations_match_the_models(shop: DjangoShop) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    assert tables_of("default") == []
    assert tables_of("second") == []


def test_the_tables_are_those_of_sqlalchemy(shop: DjangoShop, database: Database) -> None:
    """A relay of either kind can read rows that the other kind has written."""
    metadata, engine = MetaData(), create_engine(database.url)
    theirs = SqlAlchemyOutbox(metadata, wake=False)
    try:
        theirs.validate_schema(engine)
        with engine.begin() as writing:
            one = receipt.push_in(writing, 1).id
        two = place(2)
        assert shop.relay().drain() == 2
        three = place(3)
        relay = Relay(EngineDatabase(engine), [LedgerTarget(Client(shop.client.settings))])
        assert relay.drain() == 1
        relay.close()
    finally:
        forget_outbox(theirs)
        engine.dispose()
    assert {shop.state(task) for task in (one, two, three)} == {State.QUEUED}


def test_an_inbox_mark_is_there_once(shop: DjangoShop) -> None:
    InboxMark.objects.create(task_id="a", revision=0, created_at=0)
    InboxMark.objects.create(task_id="a", revision=1, created_at=0, result=b"done")
    with pytest.raises(IntegrityError), transaction.atomic():
        InboxMark.objects.create(task_id="a", revision=1, created_at=0)


def once(alias: str | None, order: int) -> dict[str, int]:
    """The body of a task that pays an order."""
    marked = ExactlyOnce(
        alias, f"pay {order}", 0, lambda value: json.dumps(value).encode(), lambda raw: json.loads(raw)
    )
    with marked:
        Order.objects.using(alias or "default").create(id=order)
        marked.result = {"paid": order}
    return {"paid": order}


def test_effects_and_the_mark_that_a_task_ran_commit_together(shop: DjangoShop) -> None:
    assert once("second", 1) == {"paid": 1}
    with pytest.raises(AlreadyRan) as told:
        once("second", 1)
    assert told.value.value == {"paid": 1}
    assert shop.orders("second") == [1]
    Order.objects.create(id=2)
    with pytest.raises(IntegrityError):
        once(None, 2)
    assert InboxMark.objects.count() == 0
    with failing(), transaction.atomic():
        once(None, 3)
        raise ZeroDivisionError
    with transaction.atomic():
        once(None, 3)
    assert shop.orders() == [2, 3]
    assert not connection.in_atomic_block


# --- the checks ------------------------------------------------------------------------------------------------------


def found(*databases: str) -> dict[str, str]:
    return {one.id: one.msg for one in run_checks(databases=databases or None) if (one.id or "").startswith("relier")}


def test_missing_tables_are_a_warning_until_migrations_have_run(project: DjangoShop) -> None:
    assert found() == {}
    assert "'default': relier_outbox: it does not exist; relier_inbox" in found("default")["relier.W002"]
    project.make_tables()
    assert found("default", "second") == {}


def test_migrate_does_not_warn_that_migrations_are_missing(
    project: DjangoShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    assert found("default") == {}


def test_tables_that_do_not_match_are_explained(shop: DjangoShop) -> None:
    with connection.schema_editor() as editor:
        editor.remove_index(OutboxRow, OutboxRow._meta.indexes[0])
        editor.remove_field(InboxMark, InboxMark._meta.get_field("result"))
        editor.execute("ALTER TABLE relier_inbox ADD more varchar(5) NOT NULL" + default_of(connection.vendor))
    told = found("default")["relier.E003"]
    assert "relier_outbox: the index on (dead, due_at, id) is missing" in told
    assert "relier_inbox: column result" in told
    assert ("column more is not one of ours" in told) is (connection.vendor != "sqlite")
    assert found("second") == {}


def default_of(vendor: str) -> str:
    return " DEFAULT 'x'" if vendor == "sqlite" else ""


@pytest.fixture
def sqlite_shop(sqlite: Database, client: Client) -> Iterator[DjangoShop]:
    with DjangoShop(client, default=sqlite.url, second=sqlite.server.fresh().url) as made:
        yield made.make_tables()


def test_a_database_that_is_not_supported_is_an_error(sqlite_shop: DjangoShop) -> None:
    connections["second"].vendor = "oracle"
    assert "cannot be in database 'second'" in found()["relier.E002"]
    with override_settings(DATABASE_ROUTERS=["tests.support.django_shop.OnlyDefault"]):
        assert found() == {}


def test_settings_are_checked(sqlite_shop: DjangoShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(RELIER_OUTBOX_STRICT=False):
        assert list(found()) == ["relier.W001"]
    try:
        for name, wrong in (("RELIER_HEARTBEAT_TTL", "soon"), ("RELIER_REDACT", "no.such:hook")):
            with monkeypatch.context() as environment:
                environment.setenv(name, wrong)
                get_settings.cache_clear()
                assert name in found()["relier.E001"]
    finally:
        get_settings.cache_clear()


# --- the admin -------------------------------------------------------------------------------------------------------

LIST = "/admin/relier/outboxrow/"


def hide(task_name: str, value: object) -> object:
    """The redaction hook of these tests. It shows only numbers."""
    return json.loads(re.sub(r"secret", "•••", json.dumps(value)))


@pytest.fixture
def office(project: DjangoShop) -> Browser:
    """A logged-in user with all permissions."""
    call_command("migrate", database="default", verbosity=0)
    call_command("migrate", "relier", database="second", verbosity=0)
    return somebody("boss", is_superuser=True)


def somebody(name: str, *permissions: str, **more: bool) -> Browser:
    user = User.objects.create_user(name, is_staff=True, **more)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Browser()
    browser.force_login(user)
    return browser


def bury(project: DjangoShop, *orders: int, note: str = "") -> list[OutboxRow]:
    with transaction.atomic():
        for order in orders:
            receipt.push_in(None, order, note)
    project.relay(Scripted(SendFailed(ValueError(f"no {note}"))), max_retries=0).drain()
    return project.rows()


def act(browser: Browser, action: str, *rows: OutboxRow) -> str:
    chosen = {"action": action, "_selected_action": [row.id for row in rows]}
    answer = browser.post(LIST, chosen, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_admin_lists_and_filters(project: DjangoShop, office: Browser) -> None:
    bury(project, 1)
    with transaction.atomic():
        receipt.with_options(queue="slow").push_in(None, 2)
        unique.push_in(None, 3)
    dead, slow, other = project.rows()

    def ids(query: str = "") -> set[str]:
        page = office.get(LIST + query)
        assert page.status_code == 200
        return {row.task_id for row in project.rows() if row.task_id in page.content.decode()}

    assert ids() == {dead.task_id, slow.task_id, other.task_id}
    assert ids("?dead=1") == {dead.task_id}
    assert ids("?dead=0") == {slow.task_id, other.task_id}
    assert ids("?queue=slow") == {slow.task_id}
    assert ids("?name=shop.unique") == {other.task_id}
    assert ids(f"?q={other.task_id}") == {other.task_id}
    assert ids("?o=4.7") == {dead.task_id, slow.task_id, other.task_id}


def test_a_row_is_shown_redacted(project: DjangoShop, office: Browser, client: Client) -> None:
    (row,) = bury(project, 7, note="<secret>")
    page = office.get(f"{LIST}{row.id}/change/")
    told = html.unescape(page.content.decode())
    assert page.status_code == 200
    assert '"<secret>"' in told
    assert "ValueError: no <secret>" in told
    assert "<secret>" not in page.content.decode()
    assert 'name="_save"' not in told
    use_client(Client(client.settings.replace(redact="tests.django.test_django:hide")))
    told = html.unescape(office.get(f"{LIST}{row.id}/change/").content.decode())
    assert "secret" not in told
    assert '"<•••>"' in told
    assert "ValueError: no <•••>" in told


def test_an_unreadable_row_is_reported(project: DjangoShop, office: Browser) -> None:
    with transaction.atomic():
        outbox.write(None, [NewRow("a", "ledger", "x", "q", "", b"\xc1"), NewRow("b", "celery", "x", "q", "", b"[1]")])
    first, second = (html.unescape(office.get(f"{LIST}{row.id}/change/").content.decode()) for row in project.rows())
    assert "cannot be read" in first
    assert "<pre>[\n  1\n]</pre>" in second


def test_dead_rows_are_replayed_and_purged(project: DjangoShop, office: Browser) -> None:
    one, two, three = bury(project, 1, 2, 3)
    with transaction.atomic():
        living = receipt.push_in(None, 4).id
    last = project.rows()[-1]
    assert "2 of the rows will be sent again" in act(office, "replay", one, two, last)
    again = project.rows()[0]
    assert (again.dead, again.retries, again.claims, again.error, again.died_at) == (0, 0, 0, "", 0)
    assert "1 of the rows were deleted" in act(office, "purge", one, two, three, last)
    assert [row.task_id for row in project.rows()] == [one.task_id, two.task_id, living]
    assert "None of the selected rows is dead" in act(office, "purge", one)
    assert LogEntry.objects.get().object_repr == f"shop.receipt {three.task_id}"
    assert project.relay().drain() == 3


def test_rows_cannot_be_edited_and_replay_needs_a_permission(project: DjangoShop, office: Browser) -> None:
    (row,) = bury(project, 1)
    assert office.get(f"{LIST}add/").status_code == 403
    assert office.post(f"{LIST}{row.id}/change/", {"name": "other"}).status_code == 403
    assert office.post(f"{LIST}{row.id}/delete/", {"post": "yes"}).status_code == 403
    reader = somebody("reader", "view_outboxrow")
    assert row.task_id in reader.get(LIST).content.decode()
    for action in ("replay", "purge"):
        act(reader, action, row)
    assert somebody("stranger").get(LIST).status_code == 403
    assert [one.dead for one in project.rows()] == [1]
    act(somebody("clerk", "change_outboxrow"), "replay", row)
    assert [one.dead for one in project.rows()] == [0]


def test_many_large_rows_are_written_at_once(shop: DjangoShop) -> None:
    """MySQL accepts statements of up to 64 MiB, MariaDB of up to 16 MiB."""
    rows = [NewRow(f"{number:032x}", "ledger", "n", "q", "", b"x" * 1_000_000) for number in range(40)]
    with transaction.atomic():
        outbox.write(None, rows)
    assert list(OutboxRow.objects.order_by("id").values_list("task_id", flat=True)) == [row.task_id for row in rows]
