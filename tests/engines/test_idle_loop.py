"""When the heartbeat thread considers its worker's event loop blocked."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest
import uvloop

from relier.background import run_until_done
from relier.engines.heartbeat import is_idle
from tests.support.fleet import wait_until


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_idle_loop_is_distinguished_from_a_busy_one(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The heartbeat thread must distinguish the two: a loop may be late without being blocked."""
    loop, thread_id, go_on = new_loop(), [0], threading.Event()
    running, done = threading.Event(), asyncio.Event()

    async def main() -> None:
        thread_id[0] = threading.get_ident()
        running.set()
        await done.wait()

    def block() -> None:
        running.set()
        go_on.wait(20)
        done.set()

    thread = threading.Thread(target=run_until_done, args=(loop, main()))
    thread.start()
    assert running.wait(20)
    wait_until(lambda: is_idle(sys._current_frames()[thread_id[0]]), what="an idle loop")
    running.clear()
    loop.call_soon_threadsafe(block)
    assert running.wait(20)
    assert not is_idle(sys._current_frames()[thread_id[0]])
    go_on.set()
    thread.join(20)
    loop.close()
