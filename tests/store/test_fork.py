"""A forked child never uses its parent's sockets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.servers import Server

PROLOGUE = f"""
import asyncio, os, sys
from pathlib import Path
from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore
from tests.support.toy_scripts import echo
scripts = Scripts(Path({str(ROOT)!r}) / "tests" / "support" / "toy_lua", {{}})
settings = Settings(redis_url=sys.argv[1])

def several(run, name):
    return [run(echo(f"{{name}}{{number}}")) == f"{{name}}{{number}}".encode() for number in range(200)]

def with_children(body):
    children = []
    for number in range(3):
        child = os.fork()
        if not child:
            os._exit(0 if body(f"child{{number}}-") else 1)
        children.append(child)
    mine = body("parent-")
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert mine and codes == [0, 0, 0], (mine, codes)
"""

SYNC = """
store = SyncStore(settings, scripts)
store.run(echo())
first = int(store.command("CLIENT", "ID"))

def body(name):
    other = int(store.command("CLIENT", "ID")) != first
    return all(several(store.run, name)) and other == (not name.startswith("parent"))

with_children(body)
store.close()
"""

NEW_LOOP = """
store = AsyncStore(settings, scripts)

async def ids():
    await store.run(echo())
    return int(await store.command("CLIENT", "ID"))

async def many(name):
    answers = await asyncio.gather(*(store.run(echo(f"{name}{number}")) for number in range(200)))
    return answers == [f"{name}{number}".encode() for number in range(200)]

with_children(lambda name: asyncio.run(many(name)))
asyncio.run(store.aclose())
"""

FORKED_INSIDE = """
store = AsyncStore(settings, scripts)

async def many(name):
    answers = await asyncio.gather(*(store.run(echo(f"{name}{number}")) for number in range(200)))
    return answers == [f"{name}{number}".encode() for number in range(200)]

async def main():
    assert await many("before-")
    child = os.fork()  # inside the running loop: the child starts a loop of its own
    if not child:
        import threading
        done = []
        thread = threading.Thread(target=lambda: done.append(asyncio.run(many("child-"))))
        thread.start()
        thread.join()
        os._exit(0 if done == [True] else 1)
    assert await many("parent-")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.matrix
@pytest.mark.parametrize("program", [SYNC, NEW_LOOP, FORKED_INSIDE], ids=["sync", "new-loop", "inside-a-loop"])
def test_a_forked_child_opens_its_own_connections(server: Server, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROLOGUE + program, server.url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
