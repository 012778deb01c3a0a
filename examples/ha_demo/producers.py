"""Producers: one thread per durability level, which pushes until it is told to stop, and never gives up on an id."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Literal

from relier import Client, IndeterminateError, StoreUnavailableError
from relier.ledger.records import new_task_id

from .tasks import work

Level = Literal["memory", "fsync", "replicated"]
PAUSE_S = 0.005
RETRY_S = 0.1


class LevelProducer:
    """`acknowledged`: id -> when `push` returned. `unconfirmed`: how often it raised, and was repeated."""

    def __init__(self, level: Level, client: Client) -> None:
        self.level = level
        self.acknowledged: dict[str, float] = {}
        self.unconfirmed = 0
        self.error: Exception | None = None
        self._client = client
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{level}-producer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def longest_wait(self) -> float:
        """Return the longest time without an acknowledgement (s): how long the loss was felt."""
        times = sorted(self.acknowledged.values())
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def _run(self) -> None:
        try:
            number = 0
            while not self._ending.wait(PAUSE_S):
                self._push(number)
                number += 1
        except Exception as error:  # noqa: BLE001 - the demo reports it, and fails
            self.error = error

    def _push(self, number: int) -> None:
        """Push one task, under the same id until it is acknowledged: that never makes a second one."""
        task_id = new_task_id()
        one = work.with_options(task_id=task_id, durability=self.level)
        while True:
            try:
                one.push(number)
            except (StoreUnavailableError, IndeterminateError):
                self.unconfirmed += 1
                if self._ending.wait(RETRY_S):
                    return  # not acknowledged, so nothing was promised
            else:
                self.acknowledged[task_id] = time.monotonic()
                return
