"""Provide the store for threads. Its calls block and need no event loop."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from relier.errors import RedisConnectionError, RelierError
from relier.settings import Settings
from relier.store.batch import Request, bounded_parts, pipelines_of, request_of
from relier.store.call import Call, result_or_error
from relier.store.connect.address import target_of
from relier.store.connect.probe import Capabilities
from relier.store.connect.resolvers import resolver_of
from relier.store.core import Core
from relier.store.master_lookup import MasterLookup
from relier.store.policy import Clock
from relier.store.scripts import Scripts
from relier.store.sync_wire import SyncWire, run_sync
from relier.store.wire import pack

T = TypeVar("T")


class SyncStore:
    """Run calls from any number of threads over one pool. A forked child gets its own pool."""

    def __init__(self, settings: Settings, scripts: Scripts, *, clock: Clock = time.monotonic) -> None:
        self._settings = settings
        self._scripts = scripts
        self._clock = clock
        self._target = target_of(settings)
        self._lookup = MasterLookup(resolver_of(self._target, settings, clock), clock)
        self._closed = False
        self._cores: dict[int, Core] = {}  # by process id

    def __repr__(self) -> str:
        return f"SyncStore({self._target.redacted_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, call: Call[T], within: float = math.inf) -> T:
        """Run one call within the deadline of the settings, or within `within` seconds if that is shorter."""
        request = request_of(call, self._scripts)
        core = self._core()
        run_sync(core.run_batch(core.batch([request], within)))
        if isinstance(request.answer, RelierError):
            raise request.answer
        return call.read(request.answer)

    def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        """Run calls, a bounded number at a time. Return an answer for each, in order, with errors as values."""
        core = self._core()
        answers: list[T | RelierError] = []
        for window in bounded_parts(calls, self._scripts):
            for pipeline in pipelines_of(request for _, request in window):
                run_sync(core.run_batch(core.batch(pipeline)))
            answers += [result_or_error(call, request.answer) for call, request in window]
        return answers

    def read_together(self, reads: Sequence[Call[Any] | tuple[Any, ...]]) -> list[Any]:
        """Run calls and raw commands that only read, in one round trip. Return an answer or a RelierError for each."""
        if not reads:
            return []
        requests = [request_of(one, self._scripts) if isinstance(one, Call) else Request(pack(one)) for one in reads]
        core = self._core()
        run_sync(core.run_batch(core.batch(requests)))
        pairs = zip(reads, requests, strict=True)
        return [result_or_error(one, sent.answer) if isinstance(one, Call) else sent.answer for one, sent in pairs]

    def command(self, *args: Any, retry: bool = False) -> Any:
        """Run a raw command, for probes, reads and tests. Once sent, it is repeated only if `retry` is true."""
        return run_sync(self._core().command(*args, retry=retry))

    def wait_for_bell(self, keys: list[str], timeout: float) -> bytes | None:
        """Block at most 1 s until a key's doorbell rings, on a separate connection. Return that key, or None."""
        return run_sync(self._core().wait_for_bell(keys, timeout))

    def wait_for_entries(self, positions: Mapping[str, str], seconds: float) -> None:
        """Block at most 1 s until a stream has an entry after its position, on a separate connection."""
        run_sync(self._core().wait_for_entries(positions, seconds))

    def probe(self) -> Capabilities:
        """Return what the server can do now. Raise ConfigurationError if the server must not be used."""
        return run_sync(self._core().probe())

    @property
    def replicas(self) -> int | None:
        """Return how many replicas `replicated` waits for, from the setting or from Sentinel; None if unknown."""
        setting = self._settings.redis_replicas
        return self._lookup.resolver.replicas if setting is None else setting

    def close(self) -> None:
        """Close the connections, and stop being a client of the embedded server. Calls in flight still finish."""
        self._closed = True
        while self._cores:
            self._cores.popitem()[1].close()
        self._lookup.resolver.close()

    def _core(self) -> Core:
        core = self._cores.get(os.getpid())
        return core if core is not None else self._new_core()

    def _new_core(self) -> Core:
        if self._closed:
            raise RedisConnectionError(f"nothing was sent: {self!r} is closed; create a new store")
        for pid in list(self._cores):
            if pid != os.getpid() and (inherited := self._cores.pop(pid, None)):  # another thread may pop it first
                inherited.close()  # a forked child closes its copies; the parent's sockets stay open
        core = Core(self._settings, self._target, self._lookup, SyncWire(), self._clock)
        return self._cores.setdefault(os.getpid(), core)  # two threads at once: one core wins
