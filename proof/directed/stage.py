"""The world of a simulated run that is written by hand: it has no actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from proof.simulator.world import SECOND, World
from relier.ledger.records import Join, Lease, Submission
from relier.store.call import Call


class Stage:
    """A world without actors. Each call runs when and how the script of the run says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = world.ledger

    def submission(self, task_id: str, **more: Any) -> Submission:
        sub = Submission(id=task_id, name="work", payload=b"p", **more)
        self.world.subs[task_id] = sub
        return sub

    def joins(self, size: int, parts: str, task_id: str = "j", **more: Any) -> list[Submission]:
        """Return the same join once for every part; each letter is a part."""
        sub = self.submission(task_id, **{"delay_ms": 60_000, **more})
        return [replace(sub, join=Join(size, part)) for part in parts]

    def other(self, task_id: str, **more: Any) -> Submission:
        """Return the task that another task continues as."""
        sub = Submission(id=task_id, **{"name": "other", "payload": b"o", **more})
        self.world.others[sub.tail()] = sub
        return sub

    def run(self, *calls: Call[Any]) -> Any:
        answer: Any = None
        for call in calls:
            answer = call.parse(self.world.apply(call))
        return answer

    def push(self, *subs: Submission) -> None:
        self.run(self.ledger.submit(subs))

    def claim(self, boot: str, seq: int, queues: Sequence[str] = ("default",), want: int = 1) -> list[Lease]:
        return [claimed.lease for claimed in self.run(self.ledger.claim(boot, seq, queues, want)).tasks]

    def wait(self, seconds: float) -> None:
        self.world.now += int(seconds * SECOND)
