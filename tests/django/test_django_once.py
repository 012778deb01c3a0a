"""`ctx.exactly_once` in Django: no attempt succeeds without its effect, and no two tasks share a mark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from relier import Client, ConfigurationError, ExactlyOnceError
from relier.django.models import InboxMark
from relier.outbox.inbox.exactly_once import AlreadyRan, Blocks, ExactlyOnce
from tests.support.databases import Database
from tests.support.django_shop import DjangoShop, Order
from tests.support.outbox_shop import failing


@pytest.fixture
def shop(database: Database, client: Client) -> Iterator[DjangoShop]:
    with DjangoShop(client, default=database.url) as made:
        yield made.make_tables()


def once(task_id: str = "invoice:7", blocks: Blocks | None = None) -> ExactlyOnce:
    return ExactlyOnce(None, task_id, 0, lambda _: None, lambda _: None, blocks=blocks)


def test_a_block_that_raises_leaves_no_mark_in_the_callers_transaction(shop: DjangoShop) -> None:
    with transaction.atomic():
        with failing(), once():
            Order.objects.create(id=1)
            raise ZeroDivisionError
        Order.objects.create(id=2)
    assert (shop.orders(), InboxMark.objects.count()) == ([2], 0)


def test_a_block_that_is_not_committed_is_reported(shop: DjangoShop) -> None:
    blocks = Blocks()
    with failing(), transaction.atomic():
        with once(blocks=blocks):
            Order.objects.create(id=1)
        raise ZeroDivisionError
    assert "neither the effects nor the mark" in str(blocks.broken())
    blocks = Blocks()
    with transaction.atomic():
        with failing(), transaction.atomic():
            with once(blocks=blocks):
                Order.objects.create(id=2)
            raise ZeroDivisionError
        Order.objects.create(id=3)
    assert isinstance(blocks.broken(), ExactlyOnceError)
    assert (shop.orders(), InboxMark.objects.count()) == ([3], 0)


def test_a_hook_of_the_callers_that_raises_does_not_hide_the_commit(shop: DjangoShop) -> None:
    def fails() -> None:
        raise ZeroDivisionError

    blocks = Blocks()
    with failing(), transaction.atomic():
        transaction.on_commit(fails)
        with once(blocks=blocks):
            Order.objects.create(id=1)
    assert blocks.broken() is None
    assert (shop.orders(), InboxMark.objects.count()) == ([1], 1)


def test_a_block_that_is_committed_is_not_reported(shop: DjangoShop) -> None:
    own, callers = Blocks(), Blocks()
    with once("own", own):
        Order.objects.create(id=1)
    with transaction.atomic(), once("callers", callers):
        Order.objects.create(id=2)
    assert (own.broken(), callers.broken()) == (None, None)
    with pytest.raises(ExactlyOnceError, match="second"), once("own", own):
        Order.objects.create(id=3)
    assert isinstance(own.broken(), ExactlyOnceError)
    assert (shop.orders(), InboxMark.objects.count()) == ([1, 2], 2)


def test_a_database_that_does_not_report_commits_is_refused(shop: DjangoShop) -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT off"), once():
            Order.objects.create(id=1)
    finally:
        connection.rollback()
        transaction.set_autocommit(True)
    assert (shop.orders(), InboxMark.objects.count()) == ([], 0)


@pytest.mark.parametrize("ids", [("aB3x", "Ab3X"), ("muller", "müller"), ("x" * 65, "x" * 66)])
def test_tasks_with_similar_ids_have_marks_of_their_own(shop: DjangoShop, ids: tuple[str, str]) -> None:
    for number, task_id in enumerate(ids):
        with once(task_id):
            Order.objects.create(id=number)
        with pytest.raises(AlreadyRan), once(task_id):
            Order.objects.create(id=10 + number)
    assert shop.orders() == [0, 1]
