"""The tasks of a schedule: submissions of every kind, what follows each, and the task that it continues as."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proof.simulator.world import World
from relier.ledger.limit_records import LimitNumbers, RunLimit
from relier.ledger.records import Join, Submission
from relier.store.call import Durability

QUEUES = ("a", "b", "c")
LIMITS = {
    "t1": LimitNumbers(1),
    "t2": LimitNumbers(2),
    "r": LimitNumbers(0, 400_000, 400_000),
    "s": LimitNumbers(1, 300_000, 600_000),
}


class Tasks:
    """Make submissions of every kind, and know their fates. The outcome of an attempt is drawn when it runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.queues = QUEUES[: world.rng.randint(*world.profile.queues)]
        self.poison: set[str] = set()
        self.hogs: set[str] = set()  # poison that kills its worker even from an isolated process
        self.n = 0
        self.parts: dict[str, Submission] = {}  # task -> the join that gets its part
        self.open: list[Submission] = []  # parts of the latest join that no task delivers yet

    def make(self, task_id: str = "") -> Submission:
        self.n += 1
        task_id = task_id or f"t{self.n}"
        more = self._when() | self._ends(task_id) | self._kept() | self._limits()
        queue = self.world.rng.choice(self.queues)
        sub = Submission(id=task_id, name="work", payload=b"p%d" % self.n, queue=queue, **more)
        self.world.subs[task_id] = sub
        if self.world.profile.joined and self.world.rng.random() < self.world.profile.joined:
            part = self._part()
            if task_id == f"{part.id}f":  # a follow-up of a join cannot be a part of it: the two would never end
                self.open.append(part)
            else:
                self.parts[task_id] = part
        return sub

    def _part(self) -> Submission:
        """Return a part of the latest join, until as many parts are assigned as it waits for, give or take one."""
        rng = self.world.rng
        if not self.open:
            size = rng.randint(1, 3)
            more = self._ends(f"j{self.n}") | self._kept() | {"nonce": ""}
            more |= {"eta_ms": 1} if rng.random() < 0.1 else {"delay_ms": rng.randint(200, 4000)}
            join = Submission(id=f"j{self.n}", name="work", payload=b"j", queue=rng.choice(self.queues), **more)
            self.world.subs[join.id] = join
            brought = max(1, size + rng.choice((0, 0, 0, 1, -1)))
            self.open = [replace(join, join=Join(size, str(i))) for i in range(brought)]
        return self.open.pop()

    def other(self, task_id: str) -> Submission | None:
        """Perhaps return another task that a task continues as."""
        rng, p = self.world.rng, self.world.profile
        if not p.replaced or rng.random() >= p.replaced:
            return None
        self.n += 1
        more = self._kept() | {"nonce": "", "priority": rng.randint(-2, 2)}
        if rng.random() < 0.3:
            more["on_lost"] = rng.choice(("bury", "hold"))
        if rng.random() < 0.3:
            more["max_resurrections"] = rng.randint(0, 2)
        sub = Submission(
            id=task_id,
            name=rng.choice(("work", "other")),
            payload=b"o%d" % self.n,
            queue=rng.choice(self.queues),
            **more,
        )
        self.world.others[sub.tail()] = sub
        return sub

    def _when(self) -> dict[str, Any]:
        rng, p = self.world.rng, self.world.profile
        more: dict[str, Any] = {}
        chance = rng.random
        if chance() < p.keyed:
            more.update(key=rng.choice("kl"), key_ttl_ms=rng.choice((0, 1500, 60_000)))
            more["on_conflict"] = "replace" if chance() < 0.3 else "return"
        if chance() < p.delayed:
            more["delay_ms"] = rng.randint(1, 3000)
        if chance() < p.expiring:
            more["expires_in_ms"] = rng.randint(300, 6000)
        if chance() < 0.3:
            more["priority"] = rng.randint(-2, 2)
        return more

    def _ends(self, task_id: str) -> dict[str, Any]:
        rng, p = self.world.rng, self.world.profile
        more: dict[str, Any] = {}
        chance = rng.random
        if chance() < p.poison:
            self.poison.add(task_id)
            more["max_resurrections"] = rng.randint(0, 2)
            if chance() < 0.3:
                self.hogs.add(task_id)
                more["max_resurrections"] = rng.randint(0, 1)
        elif chance() < p.fragile:
            more["on_lost"] = rng.choice(("bury", "hold"))
        elif chance() < 0.3:
            more["max_resurrections"] = rng.randint(0, 2)
        return more

    def _limits(self) -> dict[str, Any]:
        """Perhaps return one or two limits, mostly with the same numbers for the same key."""
        rng, p = self.world.rng, self.world.profile
        if not p.held_back or rng.random() >= p.held_back:
            return {}
        keys = rng.sample(sorted(LIMITS), rng.choice((1, 1, 2)))
        numbers = [LIMITS[key] if rng.random() < 0.9 else LimitNumbers(3) for key in keys]
        limits = (RunLimit(key[0], key, n) for key, n in zip(keys, numbers, strict=True))
        return {"limits": tuple(limits)}

    def _kept(self) -> dict[str, Any]:
        rng, p = self.world.rng, self.world.profile
        more: dict[str, Any] = {}
        chance = rng.random
        if chance() < p.short:
            more.update(result_ttl_ms=rng.randint(0, 2000), dead_ttl_ms=rng.randint(500, 3000))
        if chance() < 0.1:
            more["tomb_ttl_ms"] = 60_000
        if chance() < 0.2:
            more["nonce"] = f"n{self.n}"
        if chance() < p.strong:
            more["durability"] = rng.choice((Durability.FSYNC, Durability.REPLICATED))
        return more

    def following(self, task_id: str) -> list[Submission]:
        """Return what follows a task: the same ids, whoever commits it."""
        follow_id = f"{task_id}f"
        brought = [self.parts[task_id]] if task_id in self.parts else []
        if follow_id in self.world.subs:
            return [self.world.subs[follow_id], *brought]
        if "f" in task_id or self.world.rng.random() >= self.world.profile.follow:
            return brought
        return [self.make(follow_id), *brought]
