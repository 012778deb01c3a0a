"""Connect one process to the ledger: its settings, the moves, and both stores. All are made at first use and kept.

With RELIER_SHARDS there is one client per shard, and one of all shards, which only knows them: `client.of(task_id)` is
the client of the shard where a task lies. Without shards, every client is the client of the only namespace.

Threads and event loops may share a client. A client also survives a fork, because its stores do.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from relier.codec.keyring import Keyring
from relier.errors import ConfigurationError
from relier.event_stream.cursor import places_of, topics_of
from relier.event_stream.follower import EventAccess, EventFollower
from relier.event_stream.shards import ShardedFollower, split_cursor
from relier.ledger.events.records import Event, Missed
from relier.ledger.ledger import Ledger, scripts_of
from relier.ledger.records import Accepted, Admission, Submission
from relier.settings import Settings, get_settings
from relier.settings.shards import ROOT, shard_of, split_urls
from relier.store import AsyncStore, Call, Durability, Scripts, SyncStore
from relier.store.connect.address import parse_url, target_of, with_absolute_files
from relier.store.connect.embedded import folder_of
from relier.store.connect.heartbeat import heartbeat_settings
from relier.store.sync_wire import run_sync
from relier.submit.birth import BirthMark, RootCheck
from relier.submit.ledger_access import Answers, AwaitedCalls, BlockingCalls, LedgerAccess, Namespace

T = TypeVar("T")


class KeptValue(Generic[T]):
    """Make a value at first use and keep it. Threads that ask at the same time get the same value.

    `functools.cached_property` has no lock since Python 3.12: each of these threads would get its own store, and only
    the last store would ever be closed. Nor does this class use a lock: another thread might fork while it is held.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]  # the class was asked, as tools for documentation do
        kept: T = vars(instance).setdefault(self._name, self._make(instance))
        return kept


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

    # --- shards --------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> Client:
        """Return the client of all shards. Without shards, that is this client."""
        if self.settings.shard is None:
            return self
        if "_whole" not in vars(self):
            vars(self).setdefault("_whole", Client(self.settings.whole))
        return vars(self)["_whole"]  # type: ignore[no-any-return]

    @KeptValue
    def shards(self) -> tuple[Client, ...]:
        """Return the clients of all shards, in order. Without shards, that is this client."""
        if self.settings.shard is not None:
            return self.whole.shards
        return tuple(self._of_shard(shard) for shard in range(self.settings.shards))

    def _of_shard(self, shard: int) -> Client:
        if self.settings.shards == 1:
            return self
        made = Client(self.settings.of_shard(shard))
        vars(made).update(_whole=self, root=self.root)
        return made

    def of(self, name: str) -> Client:
        """Return the client of the shard to which an id or a key belongs. Without shards, return this client."""
        shards = self.settings.shards
        return self if shards == 1 else self.shards[shard_of(name, shards)]

    @KeptValue
    def root(self) -> RootCheck | None:
        """Return the check of the number of shards that all shards share, or None without shards."""
        return None if self.settings.shards == 1 else RootCheck(self.settings.of_shard(ROOT))

    # --- one namespace -------------------------------------------------------------------------------------------

    @KeptValue
    def ledger(self) -> Ledger:
        """Return the moves of this namespace. Raise ShardsError for the client of several shards."""
        return Ledger(self.settings)

    @KeptValue
    def birth(self) -> BirthMark:
        return BirthMark(partial(place_of, self.settings))

    @KeptValue
    def namespace(self) -> Namespace:
        return Namespace(self.settings, self.ledger, self.birth, self.root)

    @KeptValue
    def scripts(self) -> Scripts:
        return scripts_of(self.settings)

    @KeptValue
    def awaiting(self) -> LedgerAccess[AwaitedCalls]:
        return LedgerAccess(self.namespace, AwaitedCalls(AsyncStore(self.settings, self.scripts)))

    @KeptValue
    def blocking(self) -> LedgerAccess[BlockingCalls]:
        return LedgerAccess(self.namespace, BlockingCalls(SyncStore(self.settings, self.scripts)))

    @property
    def store(self) -> AsyncStore:
        return self.awaiting.calls.store

    @property
    def sync_store(self) -> SyncStore:
        return self.blocking.calls.store

    @KeptValue
    def renewals(self) -> AsyncStore:
        """Return the store that renews locks of code on event loops. It is separate, as for heartbeats."""
        return AsyncStore(self._renewal_settings, self.scripts)

    @KeptValue
    def sync_renewals(self) -> SyncStore:
        """Return the store that renews locks of blocking code."""
        return SyncStore(self._renewal_settings, self.scripts)

    @property
    def _renewal_settings(self) -> Settings:
        return heartbeat_settings(self.settings, self.settings.idempotency_inflight_ttl)

    # --- calls ---------------------------------------------------------------------------------------------------

    def aopen(self) -> Coroutine[Any, Any, None]:
        """Mark the namespace with this release's layout, once per process. Raise if the layout there is different."""
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
        """Submit the tasks. In a running task, repeat the call until the store answers."""
        return self.awaiting.submit(tasks, admission, level)

    def submit(self, tasks: Sequence[Submission], admission: Admission | None, level: Durability) -> list[Accepted]:
        return run_sync(self.blocking.submit(tasks, admission, level))

    def asubmit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Coroutine[Any, Any, Answers]:
        """Submit several chunks of tasks. Return, for each chunk, the accepted tasks or the error of the store."""
        return self.awaiting.submit_all(chunks, admission, level)

    def submit_all(
        self, chunks: Sequence[Sequence[Submission]], admission: Admission | None, level: Durability
    ) -> Answers:
        return run_sync(self.blocking.submit_all(chunks, admission, level))

    def events(self, topics: str | Iterable[str] | None = None, since: str = "now") -> AsyncIterator[Event | Missed]:
        """Yield events from now on, or after `since`: the `cursor` of an event, or 'start' for all that are kept.

        `topics`: tasks, batches, schedules or cluster; all by default. A `Missed` says that some could not be
        delivered. Outages of the store do not end the iteration.
        """
        return self._follower(attrgetter("awaiting"), topics, since).follow()

    def events_sync(self, topics: str | Iterable[str] | None = None, since: str = "now") -> Iterator[Event | Missed]:
        """Yield events, as `events` does. The thread blocks while nothing changes."""
        return self._follower(attrgetter("blocking"), topics, since).follow_sync()

    def _follower(
        self, access_of: Callable[[Client], EventAccess], topics: str | Iterable[str] | None, since: str
    ) -> EventFollower | ShardedFollower:
        wanted = topics_of(topics)
        if not self.settings.is_sharded:
            return EventFollower(self.ledger, self.settings, access_of(self), places_of(since, wanted))
        begin = split_cursor(since, self.settings.shards)
        followers = [
            EventFollower(shard.ledger, shard.settings, access_of(shard), places_of(place, wanted))
            for shard, place in zip(self.shards, begin, strict=True)
        ]
        return ShardedFollower(followers, begin)

    @property
    def _made_shards(self) -> tuple[Client, ...]:
        """Return the clients of shards that this client has made."""
        return self.__dict__.get("shards", ()) if self.settings.is_sharded else ()

    async def aclose(self) -> None:
        """Close what this loop and blocking callers opened."""
        for shard in self._made_shards:
            await shard.aclose()
        if "awaiting" in self.__dict__:
            await self.store.aclose()
        if "renewals" in self.__dict__:
            await self.renewals.aclose()
        self.close()

    def close(self) -> None:
        for shard in self._made_shards:
            shard.close()
        if "blocking" in self.__dict__:
            self.sync_store.close()
        if "sync_renewals" in self.__dict__:
            self.sync_renewals.close()


def absolute(settings: Settings) -> Settings:
    """Return the settings with absolute paths.

    Stores and checkpoints are opened later, when a task's code may have changed the working directory of its process.
    """
    urls = split_urls(settings.redis_url) if settings.shards > 1 else (settings.redis_url,)
    absolute_url = with_absolute_files if settings.redis_use_sentinel else _absolute_url
    paths = {
        "redis_url": " ".join(map(absolute_url, urls)),
        "redis_sentinel_nodes": with_absolute_files(settings.redis_sentinel_nodes),
    }
    where = settings.checkpoint_dir.removeprefix("file://")
    if where and "://" not in where:
        paths["checkpoint_dir"] = os.path.abspath(where)
    changed = {name: value for name, value in paths.items() if value != getattr(settings, name)}
    return settings.replace(**changed) if changed else settings


def _absolute_url(url: str) -> str:
    with contextlib.suppress(ConfigurationError):  # an unusable URL is reported when the store is made
        target = parse_url(url)
        if target.kind == "embedded":
            return f"embedded://{quote(str(folder_of(target.folder)))}"
    return with_absolute_files(url)


def place_of(settings: Settings) -> str:
    """Return a description of the namespace and its store for logs and messages. Passwords are masked."""
    if settings.is_sharded:
        places = dict.fromkeys(_shown(settings.of_shard(shard)) for shard in range(settings.shards))
        return f"namespace {settings.namespace!r} in {settings.shards} shards at {', '.join(places)}"
    return f"namespace {settings.namespace!r} at {_shown(settings)}"


def _shown(settings: Settings) -> str:
    target = target_of(settings)
    return f"embedded://{folder_of(target.folder)}" if target.kind == "embedded" else target.redacted_url


def is_store_chosen(settings: Settings) -> bool:
    """Return whether the store was set explicitly, rather than left to the default, an embedded one."""
    return settings.redis_use_sentinel or settings.is_given("redis_url")


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
    """Return whether the store that tasks push to was set explicitly.

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
