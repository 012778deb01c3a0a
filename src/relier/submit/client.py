"""One process' way to the ledger: settings, moves and both stores, made at first use and kept.

A client may be shared by threads and event loops, and survives a fork: the stores see to that.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TypeVar
from urllib.parse import quote

from relier.errors import (
    ConfigurationError,
    PushIndeterminate,
    RelierError,
    StoreEmptiedError,
    StoreError,
    StoreReplyError,
    StoreSetupError,
)
from relier.keyring import Keyring
from relier.ledger.ledger import Ledger, load_scripts
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings import Settings, get_settings
from relier.store import AsyncStore, Call, Durability, Scripts, SyncStore
from relier.store.connect.address import target_of, with_absolute_files
from relier.store.connect.embedded import folder_of
from relier.store.heartbeat import heartbeat_settings
from relier.submit.birth import BirthMark
from relier.submit.insist import ainsist, insist, unless_it_passes

T = TypeVar("T")
log = logging.getLogger("relier.submit")
SHORTEST_S = 0.25  # for the first call after a namespace was opened: the store is well


class Client:
    """The moves of one namespace on one store, for both kinds of callers."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = absolute(settings or get_settings())
        self.keyring = Keyring.of(self.settings)
        self.ledger = Ledger(self.settings)
        self.birth = BirthMark(partial(place_of, self.settings))
        self._opened = False

    @cached_property
    def scripts(self) -> Scripts:
        return load_scripts()

    @cached_property
    def store(self) -> AsyncStore:
        return AsyncStore(self.settings, self.scripts)

    @cached_property
    def sync_store(self) -> SyncStore:
        return SyncStore(self.settings, self.scripts)

    @cached_property
    def renewals(self) -> AsyncStore:
        """What renews the locks of code on event loops: apart from other calls, as heartbeats are."""
        return AsyncStore(self._renewal_settings, self.scripts)

    @cached_property
    def sync_renewals(self) -> SyncStore:
        """The same for the locks of blocking code."""
        return SyncStore(self._renewal_settings, self.scripts)

    @property
    def _renewal_settings(self) -> Settings:
        return heartbeat_settings(self.settings, self.settings.idempotency_inflight_ttl)

    async def aopen(self) -> None:
        """Mark the namespace with this layout, or refuse a stranger's; once a process."""
        if not self._opened:
            self.birth.learn(await self.store.run(self.ledger.open(self.birth.mark)))
            self._opened = True

    def open(self, within: float = math.inf) -> None:
        if not self._opened:
            self.birth.learn(self.sync_store.run(self.ledger.open(self.birth.mark), within))
            self._opened = True

    @property
    def opened(self) -> bool:
        """Whether the store let this process in before."""
        return self._opened

    async def _areopen(self) -> None:
        """The store has another birth mark than this process remembers."""
        self._opened = False
        with contextlib.suppress(RelierError):  # else at the next call
            await self.aopen()

    def _reopen(self) -> None:
        self._opened = False
        with contextlib.suppress(RelierError):
            self.open()

    async def arun(self, call: Call[T]) -> T:
        if not self._opened:
            await self.aopen()
        try:
            return await self.store.run(call)
        except StoreEmptiedError:
            await self._areopen()
            raise

    def run(self, call: Call[T], within: float = math.inf) -> T:
        """Run one call, by its deadline or `within` fewer seconds."""
        if not self._opened:
            until = time.monotonic() + within
            self.open(within)
            within = max(SHORTEST_S, until - time.monotonic())
        try:
            return self.sync_store.run(call, within)
        except StoreEmptiedError:
            self._reopen()
            raise

    async def asubmit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> list[Accepted]:
        return await ainsist(partial(self._asubmit, tasks, admission, level), level)

    def submit(self, tasks: Sequence[Submission], admission: Admission | None, level: Durability) -> list[Accepted]:
        return insist(partial(self._submit, tasks, admission, level), level)

    async def asubmit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> list[list[Accepted] | RelierError]:
        """Chunks of a bulk: an answer for each, what the store failed at as values."""
        return await ainsist(partial(self._asubmit_all, chunks, admission, level), level)

    def submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> list[list[Accepted] | RelierError]:
        """The same, blocking."""
        return insist(partial(self._submit_all, chunks, admission, level), level)

    async def _asubmit(
        self, tasks: Sequence[Submission], admission: Admission | None, level: Durability
    ) -> list[Accepted]:
        try:
            accepted = await self.arun(self.ledger.submit(tasks, admission, level))
        except StoreError as error:
            self._look_into(error, tasks, admission)
            accepted = await self.arun(self.ledger.submit(tasks, None, level))
        if self._is_another(accepted):
            await self._areopen()
        return accepted

    def _submit(self, tasks: Sequence[Submission], admission: Admission | None, level: Durability) -> list[Accepted]:
        try:
            accepted = self.run(self.ledger.submit(tasks, admission, level))
        except StoreError as error:
            self._look_into(error, tasks, admission)
            accepted = self.run(self.ledger.submit(tasks, None, level))
        if self._is_another(accepted):
            self._reopen()
        return accepted

    async def _asubmit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> list[list[Accepted] | RelierError]:
        if len(chunks) > 1:
            try:
                await self.aopen()
            except StoreError as error:  # open anew: the store was emptied while the bulk was under way
                return unless_it_passes([error] * len(chunks), level)
            answers = await self.store.run_many(self.ledger.submit(chunk, admission, level) for chunk in chunks)
            if self._is_another(answers[-1]):
                await self._areopen()
            return unless_it_passes(answers, level)
        try:
            return [await self._asubmit(chunks[0], admission, level)]
        except (StoreError, PushIndeterminate) as error:
            return unless_it_passes([error], level)

    def _submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> list[list[Accepted] | RelierError]:
        if len(chunks) > 1:
            try:
                self.open()
            except StoreError as error:
                return unless_it_passes([error] * len(chunks), level)
            answers = self.sync_store.run_many(self.ledger.submit(chunk, admission, level) for chunk in chunks)
            if self._is_another(answers[-1]):
                self._reopen()
            return unless_it_passes(answers, level)
        try:
            return [self._submit(chunks[0], admission, level)]
        except (StoreError, PushIndeterminate) as error:
            return unless_it_passes([error], level)

    def _is_another(self, answer: list[Accepted] | RelierError) -> bool:
        """Whether it is not the store that this process remembers that accepted them."""
        return not isinstance(answer, RelierError) and answer[0].born != self.birth.mark

    def _look_into(self, error: StoreError, tasks: Sequence[Submission], admission: Admission | None) -> None:
        """Raises it, saying under which id to push again; but not for limits whose state cannot be read, where
        RELIER_ADMISSION_FAIL_OPEN says to go on without them."""
        if isinstance(error, StoreReplyError) and admission is not None and self.settings.admission_fail_open:
            log.warning("admission limits could not be checked, and the push goes on without them: %s", error)
            return
        error.task_ids = tuple(task.id for task in tasks)
        if len(tasks) == 1 and not isinstance(error, StoreSetupError):
            error.add_note(
                f"push it again with with_options(task_id={error.task_id!r}): that never makes a second task"
            )
        raise error

    async def aclose(self) -> None:
        """Close what this loop and the blocking callers opened."""
        for name in {"store", "renewals"} & self.__dict__.keys():
            await self.__dict__[name].aclose()
        self.close()

    def close(self) -> None:
        for name in {"sync_store", "sync_renewals"} & self.__dict__.keys():
            self.__dict__[name].close()


def absolute(settings: Settings) -> Settings:
    """The settings with absolute paths: stores and checkpoints are opened later, and by then a task's code may have
    changed the folder of its process."""
    paths = {
        "redis_url": with_absolute_files(settings.redis_url),
        "redis_sentinel_nodes": with_absolute_files(settings.redis_sentinel_nodes),
    }
    with contextlib.suppress(ConfigurationError):  # a URL that cannot be used is reported where it is
        target = target_of(settings)
        if target.kind == "embedded":
            paths["redis_url"] = f"embedded://{quote(str(folder_of(target.folder)))}"
    where = settings.checkpoint_dir.removeprefix("file://")
    if where and "://" not in where:
        paths["checkpoint_dir"] = os.path.abspath(where)
    changed = {name: value for name, value in paths.items() if value != getattr(settings, name)}
    return settings.model_copy(update=changed) if changed else settings


def place_of(settings: Settings) -> str:
    """Which namespace of which store, for people who wonder whether it is the right one. Passwords are masked."""
    target = target_of(settings)
    shown = f"embedded://{folder_of(target.folder)}" if target.kind == "embedded" else target.redacted_url
    return f"namespace {settings.namespace!r} at {shown}"


_default: Client | None = None
_lock = threading.Lock()


def default_client() -> Client:
    """The client tasks push through: by default one of the environment's settings, made at the first push."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Client()
    return _default


def use_client(client: Client | None) -> None:
    """Push through this client from now on; None: back to the environment's."""
    global _default
    _default = client
