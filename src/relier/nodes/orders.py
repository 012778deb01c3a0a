"""Conform to orders: bring a node into the state that an operator wants. Each heartbeat repeats the orders."""

from __future__ import annotations

from collections.abc import Callable

from relier.ledger.nodes import Orders
from relier.nodes.log_level import OrderedLogLevel


class OrderFollower:
    """Calls `set_draining` and `stop` when the orders of a node change, and sets its log level. Repeated orders have no
    effect.
    """

    def __init__(self, set_draining: Callable[[bool], None], stop: Callable[[], None]) -> None:
        self._set_draining = set_draining
        self._stop = stop
        self._level = OrderedLogLevel()
        self._stopped = False
        self.orders = Orders()

    def conform(self, orders: Orders | None) -> None:
        """Apply the orders in the answer to a heartbeat. None: no operator has given any."""
        if orders is None:
            return
        was_draining, self.orders = self.orders.draining, orders
        self._level.set_to(orders.log_level)
        if orders.draining != was_draining:
            self._set_draining(orders.draining)
        if orders.stopping and not self._stopped:
            self._stopped = True
            self._stop()
