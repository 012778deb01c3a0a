"""The memory that a worker shares with its pool processes."""

from __future__ import annotations

import os
import warnings

import pytest

from relier.celery.pool.shared_orders import STOP, WARN, SharedOrders


@pytest.fixture
def board() -> SharedOrders:
    board = SharedOrders()
    board.open()
    return board


def test_a_lease_is_trusted_only_by_attempts_of_its_worker_id(board: SharedOrders) -> None:
    board.share_lease("one", 12.5)
    assert (board.trusted_until("one"), board.is_lost("one")) == (12.5, False)
    board.share_lease("reborn", 20.0)
    assert (board.trusted_until("one"), board.is_lost("one")) == (0.0, True)
    assert (board.trusted_until("reborn"), board.is_lost("reborn")) == (20.0, False)


def test_an_order_is_for_one_attempt_and_no_other_in_the_same_process(board: SharedOrders) -> None:
    board.order(77, ("task", "1"), STOP)
    assert board.orders_for(77, ("task", "1")) == STOP
    assert board.orders_for(77, ("task", "2")) == board.orders_for(78, ("task", "1")) == 0


def test_a_second_order_does_not_undo_the_first(board: SharedOrders) -> None:
    board.order(77, ("task", "1"), WARN)
    board.order(77, ("task", "1"), STOP)
    assert board.orders_for(77, ("task", "1")) == WARN | STOP
    board.order(77, ("task", "2"), WARN)
    assert board.orders_for(77, ("task", "2")) == WARN


def test_a_forked_process_sees_later_changes(board: SharedOrders) -> None:
    read, write = os.pipe()
    with warnings.catch_warnings():  # this process has threads, and the child does nothing that needs them
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(board.orders_for(77, ("task", "1")))
    board.order(77, ("task", "1"), STOP)
    os.write(write, b"1")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == STOP
