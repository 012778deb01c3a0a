"""What a worker does when it starts: wait for its store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from relier.errors import StoreSetupError, StoreUnavailableError
from relier.store.until_answered import growing_pauses

log = logging.getLogger("relier.worker")

REPORT_S = 30.0  # how often to report that the store is still away


async def until_reachable(act: Callable[[], Awaitable[Any]], stopped: asyncio.Event) -> bool:
    """Await `act` until the store answers. Return False if the process was told to stop before that.

    A store that refuses this client (user, password, ACL, eviction policy) does not count as away: the error is raised.
    """
    reported = -math.inf
    for pause in growing_pauses():
        try:
            await act()
        except StoreSetupError:
            raise
        except StoreUnavailableError as error:
            if time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                log.warning("store unreachable, waiting for it before the start: %s", error)
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), pause)
        if stopped.is_set():
            break
    return False
