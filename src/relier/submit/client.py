"""Connect one process to the ledger: its settings, the moves, and both stores. All are made at first use and kept.

Threads and event loops may share a client. A client also survives a fork, because its stores do.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Coroutine, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from relier.codec.keyring import Keyring
from relier.errors import ConfigurationError
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings import Settings, get_settings
from relier.store import AsyncStore, Call, Durability, Scripts, SyncStore
from relier.store.connect.address import target_of, with_absolute_files
from relier.store.connect.embedded import folder_of
from relier.store.connect.heartbeat import heartbeat_settings
from relier.store.sync_wire import run_sync
from relier.submit.birth import BirthMark
from relier.submit.ledger_access import Answers, AwaitedCalls, BlockingCalls, LedgerAccess, Namespace

T = TypeVar("T")


class Client:
    """Run the moves of one namespace on one store. Names that begin with `a` are for event loops; the others block.

    Both kinds run the same code: `awaiting` and `blocking` (submit/ledger_access.py).
    """

    is_stand_in: ClassVar[bool] = False  # the client of a test, which an application with its own settings keeps

    def __init__(self, settings: Settings | None = None) -> None:
        given = settings or get_settings()
        self.has_chosen_store = is_store_chosen(given)
        self.settings = absolute(given)
        self.keyring = Keyring.of(self.settings)
        self.ledger = Ledger(self.settings)
        self.birth = BirthMark(partial(place_of, self.settings))
        self.namespace = Namespace(self.settings, self.ledger, self.birth)

    @cached_property
    def scripts(self) -> Scripts:
        return load_scripts()

    @cached_property
    def awaiting(self) -> LedgerAccess[AwaitedCalls]:
        return LedgerAccess(self.namespace, AwaitedCalls(AsyncStore(self.settings, self.scripts)))

    @cached_property
    def blocking(self) -> LedgerAccess[BlockingCalls]:
        return LedgerAccess(self.namespace, BlockingCalls(SyncStore(self.settings, self.scripts)))

    @property
    def store(self) -> AsyncStore:
        return self.awaiting.calls.store

    @property
    def sync_store(self) -> SyncStore:
        return self.blocking.calls.store

    @cached_property
    def renewals(self) -> AsyncStore:
        """Return the store that renews locks of code on event loops, apart from other calls, as heartbeats are."""
        return AsyncStore(self._renewal_settings, self.scripts)

    @cached_property
    def sync_renewals(self) -> SyncStore:
        """Return the store that renews locks of blocking code."""
        return SyncStore(self._renewal_settings, self.scripts)

    @property
    def _renewal_settings(self) -> Settings:
        return heartbeat_settings(self.settings, self.settings.idempotency_inflight_ttl)

    def aopen(self) -> Coroutine[Any, Any, None]:
        """Mark the namespace with this release's layout, once per process. Raise if the layout there is another."""
        return self.awaiting.open()

    def open(self) -> None:
        run_sync(self.blocking.open())

    def arun(self, call: Call[T]) -> Coroutine[Any, Any, T]:
        """Run one call within its deadline."""
        return self.awaiting.run(call)

    def run(self, call: Call[T], within: float = math.inf) -> T:
        """Run one call within its deadline, or within `within` seconds if that is shorter."""
        return run_sync(self.blocking.run(call, within))

    def asubmit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> Coroutine[Any, Any, list[Accepted]]:
        """Submit the tasks; in a running task, until the store answers."""
        return self.awaiting.submit(tasks, admission, level)

    def submit(self, tasks: Sequence[Submission], admission: Admission | None, level: Durability) -> list[Accepted]:
        return run_sync(self.blocking.submit(tasks, admission, level))

    def asubmit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Coroutine[Any, Any, Answers]:
        """Submit chunks of a bulk. Return an answer for each, with the store's errors as values."""
        return self.awaiting.submit_all(chunks, admission, level)

    def submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Answers:
        return run_sync(self.blocking.submit_all(chunks, admission, level))

    async def aclose(self) -> None:
        """Close what this loop and blocking callers opened."""
        if "awaiting" in self.__dict__:
            await self.store.aclose()
        if "renewals" in self.__dict__:
            await self.renewals.aclose()
        self.close()

    def close(self) -> None:
        if "blocking" in self.__dict__:
            self.sync_store.close()
        if "sync_renewals" in self.__dict__:
            self.sync_renewals.close()


def absolute(settings: Settings) -> Settings:
    """Return the settings with absolute paths.

    Stores and checkpoints are opened later, when a task's code may have changed the working directory of its process.
    """
    paths = {
        "redis_url": with_absolute_files(settings.redis_url),
        "redis_sentinel_nodes": with_absolute_files(settings.redis_sentinel_nodes),
    }
    with contextlib.suppress(ConfigurationError):  # an unusable URL is reported when the store is made
        target = target_of(settings)
        if target.kind == "embedded":
            paths["redis_url"] = f"embedded://{quote(str(folder_of(target.folder)))}"
    where = settings.checkpoint_dir.removeprefix("file://")
    if where and "://" not in where:
        paths["checkpoint_dir"] = os.path.abspath(where)
    changed = {name: value for name, value in paths.items() if value != getattr(settings, name)}
    return settings.model_copy(update=changed) if changed else settings


def place_of(settings: Settings) -> str:
    """Return a description of the namespace and its store for logs and messages. Passwords are masked."""
    target = target_of(settings)
    shown = f"embedded://{folder_of(target.folder)}" if target.kind == "embedded" else target.redacted_url
    return f"namespace {settings.namespace!r} at {shown}"


def is_store_chosen(settings: Settings) -> bool:
    """Return whether the store was written out, rather than left to the default, an embedded one."""
    return settings.redis_use_sentinel or "redis_url" in settings.model_fields_set


_default: Client | None = None
_lock = threading.Lock()


def default_client() -> Client:
    """Return the client that tasks push through: by default one with the environment's settings, made on first use."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Client()
    return _default


def has_chosen_store() -> bool:
    """Return whether the store that tasks push to was written out.

    Without a client the environment is read anew, so that settings which change later still apply.
    """
    client = _default
    return is_store_chosen(get_settings.__wrapped__()) if client is None else client.has_chosen_store


def has_stand_in() -> bool:
    """Return whether tasks are pushed through the client of a test."""
    return _default is not None and _default.is_stand_in


def use_client(client: Client | None) -> Client | None:
    """Push through this client from now on, or through one with the environment's settings if `client` is None.

    Return the client that was used before, or None if there was none.
    """
    global _default
    before, _default = _default, client
    return before
