"""The path of a call: the files that a call passes once its store has a connection. ARCHITECTURE.md lists them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import relier
from relier.settings import Settings
from relier.store import AsyncStore, Scripts, SyncStore
from tests.support.toy_scripts import echo

pytestmark = pytest.mark.anyio

PACKAGE = Path(relier.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
SYNC_ONLY = {"store/sync_store.py", "store/sync_wire.py", "store/wire.py"}
ASYNC_ONLY = {"store/async_store.py", "store/async_wire.py"}


@contextmanager
def files_passed() -> Iterator[set[str]]:
    """Collect the files of Relier in which a function is called, as paths inside the package."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.add(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)


def described() -> set[str]:
    """Return the files of store/ that ARCHITECTURE.md names as the path of a call."""
    section = ARCHITECTURE.read_text(encoding="utf-8").partition("## The path of a call")[2]
    return set(re.findall(r"store/\w+\.py", section.partition("`store/connect/`")[0]))


def test_a_warm_sync_call_passes_the_files_that_the_architecture_names(settings: Settings, scripts: Scripts) -> None:
    with SyncStore(settings, scripts) as store:
        store.run(echo())
        with files_passed() as files:
            store.run(echo())
    assert files == described() - ASYNC_ONLY


async def test_a_warm_async_call_passes_the_files_that_the_architecture_names(
    settings: Settings, scripts: Scripts
) -> None:
    async with AsyncStore(settings, scripts) as store:
        await store.run(echo())
        with files_passed() as files:
            await store.run(echo())
    assert files == described() - SYNC_ONLY
