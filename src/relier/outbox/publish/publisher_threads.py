"""The threads that publish. A relay waits for a publish up to the target's limit, then continues without the answer.

The threads are daemons, so a thread that hangs in a broker's socket does not stop the process from exiting. A thread
whose publish was abandoned ends when its call returns; a new thread takes its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from relier.outbox.publish.target import Outage, Outcome
from relier.outbox.row import Row

Send = Callable[[Sequence[Row]], list[Outcome]]


@dataclass(eq=False, slots=True)
class PublishJob:
    """One chunk that is being published. `until`: when the relay stops waiting for it, by time.monotonic()."""

    send: Send
    chunk: Sequence[Row]
    until: float
    limit: float
    outcomes: list[Outcome] = field(default_factory=list)
    error: BaseException | None = None
    returned: bool = False
    given_up: bool = False


class PublisherThreads:
    """At most `most` threads, started on demand. Used by one relay's thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = 0
        self._lock = threading.Lock()  # a publish either returns or is abandoned, never both
        self._jobs: SimpleQueue[PublishJob | None] = SimpleQueue()
        self._returned: SimpleQueue[PublishJob] = SimpleQueue()
        self.under_way: set[PublishJob] = set()

    @property
    def has_room(self) -> bool:
        return len(self.under_way) < self._most

    def begin(self, send: Send, chunk: Sequence[Row], limit: float) -> None:
        if self._threads <= len(self.under_way):
            self._threads += 1
            threading.Thread(target=self._run, name="relier-publishes", daemon=True).start()
        publish = PublishJob(send, chunk, time.monotonic() + limit, limit)
        self.under_way.add(publish)
        self._jobs.put(publish)

    def wait(self, seconds: float) -> list[PublishJob]:
        """Wait until a publish returns, or exceeds its limit, which is an outage of its target."""
        soonest = min(publish.until for publish in self.under_way) - time.monotonic()
        ended = self._ended(max(0.0, min(seconds, soonest)))
        now = time.monotonic()
        late = [publish for publish in self.under_way if publish.until <= now and publish not in ended]
        for publish in late:
            silent = Outage(TimeoutError(f"no answer within {publish.limit:g} s (--send-timeout)"))
            publish.outcomes = [silent] * len(publish.chunk)
            self.give_up(publish)
        self.under_way.difference_update(ended)
        return [*ended, *late]

    def _ended(self, seconds: float) -> list[PublishJob]:
        ended: list[PublishJob] = []
        try:
            ended.append(self._returned.get(timeout=seconds))
            while True:
                ended.append(self._returned.get_nowait())
        except Empty:
            return [publish for publish in ended if not publish.given_up]

    def give_up(self, publish: PublishJob) -> None:
        """Abandon a publish. Its outcome is ignored."""
        self.under_way.discard(publish)
        with self._lock:
            publish.given_up = True
            if not publish.returned:
                self._threads -= 1

    def close(self) -> None:
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        while (publish := self._jobs.get()) is not None:
            outcomes, error = self._outcomes_of(publish)
            with self._lock:
                if publish.given_up:
                    return
                publish.outcomes, publish.error, publish.returned = outcomes, error, True
            self._returned.put(publish)

    def _outcomes_of(self, publish: PublishJob) -> tuple[list[Outcome], BaseException | None]:
        try:
            return publish.send(publish.chunk), None
        except BaseException as error:  # noqa: BLE001 - raised again in the relay's own thread
            return [], error
