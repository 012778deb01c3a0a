"""Random calls on batches: members of batches that exist or do not, links and callbacks of every kind."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proof.differential.fuzz import QUEUES, Fuzzer
from relier.ledger.batches.membership import INHERITED, AddedPlans, BatchHeader, Member, packed_plan
from relier.ledger.batches.records import Stage
from relier.ledger.records import Lease, Submission
from relier.store.call import Call

BATCHES = [f"G{n}" for n in range(4)]
INNER = [f"I{n}" for n in range(4)]
LINKS = ["n1", "n2"]
TASKS = [f"f{n}" for n in range(60)]


class BatchFuzzer(Fuzzer):
    """Make random calls on batches."""

    def pick_batch(self) -> Call[Any]:
        moves = (
            *(
                self.open_workflow,
                self.open_workflow,
                self.add,
                self.add,
                self.add_own,
                self.add_own,
                self.open_batch,
                self.extend_batch,
            ),
            *(self.seal_batch, self.cancel_batch, self.batch, self.members_of, self.results, self.again),
            *(self.take, self.take, self.commit_plain, self.commit_plain, self.commit_plain, self.bury, self.replay),
            *(self.stop, self.forfeit, self.cancel, self.reap, self.promote),
        )
        return self.keep(self.rng.choice(moves)())

    def fresh(self) -> str:
        """Return an id, mostly one that nothing has."""
        free = [task_id for task_id in TASKS if task_id not in self.model.tasks] or TASKS
        return self.rng.choice(free if self.rng.random() < 0.9 else TASKS)

    def plain(self) -> Submission:
        rng = self.rng
        sub = replace(self.submission(self.fresh()), key="", nonce="", queue=rng.choice(QUEUES))
        return replace(sub, on_conflict="return", payload=rng.randbytes(rng.choice([0, 3, 40])))

    def place(self, batch: str, how: Any, *, goes_on: bool = False) -> Member:
        rng = self.rng
        lease = self.adder(batch) if how in {"adds", "opens"} and rng.random() < 0.5 else None
        return Member(
            batch=batch,
            place=INHERITED if goes_on else rng.choice([None, 0, 1, 2, 3]),
            next=rng.choice(["", "", *LINKS]),
            input=rng.choice(["", *(f">{name}" for name in LINKS)]),
            tasks=None if goes_on else rng.choice([0, 1, 3]),
            how=how,
            parent=rng.choice(["", *BATCHES]) if how == "opens" else "",
            adder=None if lease is None else (lease.task_id, lease.fence, lease.worker_id),
        )

    def adder(self, batch: str) -> Lease:
        """Return a member that adds: mostly a running member of the batch, sometimes of another, mostly under its
        fence."""
        of = f"{batch} " if self.rng.random() < 0.6 else ""
        mine = [
            (task_id, rec)
            for task_id, rec in self.model.tasks.items()
            if rec.state == "running" and "batch" in rec.more and rec.more["batch"].startswith(of)
        ]
        if not mine or self.rng.random() < 0.1:
            return self.lease()
        task_id, rec = self.rng.choice(mine)
        return Lease(task_id, str(rec.fence + self.rng.choice([0, 0, 1])), rec.owner)

    def add_own(self) -> Call[Any]:
        """Let a running member add to its own batch, if there is one."""
        words = [
            rec.more["batch"] for rec in self.model.tasks.values() if rec.state == "running" and "batch" in rec.more
        ]
        batch = self.rng.choice(words).split(" ")[0] if words else self.rng.choice(BATCHES)
        return self.ledger.submit([self.task(batch, "adds")])

    def task(self, batch: str, how: Any, *, goes_on: bool = False) -> Submission:
        return replace(self.plain(), member=self.place(batch, how, goes_on=goes_on))

    def plan(self, batch: str, *, goes_on: bool = False) -> bytes:
        """Return a plan of tasks that enter later: callbacks, links, an inner batch."""
        rng = self.rng
        if goes_on and rng.random() < 0.6:
            return packed_plan([], [self.task(batch, "stored", goes_on=True)])
        if goes_on:
            inner = self.header(rng.choice(INNER), plans=False)
            inner = replace(inner, open=False, parent=self.place(batch, "stored", goes_on=True))
            return packed_plan([inner], [self.task(inner.id, "stored") for _ in range(rng.choice([1, 2]))])
        return packed_plan([], [self.plain() for _ in range(rng.choice([1, 1, 2]))])

    def plans(self, batch: str) -> tuple[tuple[str, bytes], ...]:
        some = [(name, self.plan(batch, goes_on=True)) for name in LINKS if self.rng.random() < 0.6]
        some += [(name, self.plan(batch)) for name in ("then", "on_failure", "on_complete") if self.rng.random() < 0.5]
        return tuple(some)

    def header(self, batch: str, *, plans: bool = True) -> BatchHeader:
        rng = self.rng
        return BatchHeader(
            id=batch,
            open=rng.random() < 0.3,
            collects=rng.random() < 0.6,
            name=rng.choice(["", "nightly"]),
            lease_ms=rng.choice([1, 2_000, 60_000]),
            result_ttl_ms=rng.choice([None, 0, 3_000]),
            dead_ttl_ms=rng.choice([None, 3_000]),
            plans=self.plans(batch) if plans else (),
        )

    def open_workflow(self) -> Call[Any]:
        rng, batch = self.rng, self.rng.choice(BATCHES)
        headers: list[BatchHeader | AddedPlans] = [self.header(batch)]
        tasks = [self.task(batch, "with") for _ in range(rng.choice([1, 2, 3]))]
        if rng.random() < 0.4:
            inner = replace(self.header(rng.choice(INNER)), open=False, parent=self.place(batch, "with"))
            headers.append(inner)
            tasks += [self.task(inner.id, "with") for _ in range(rng.choice([1, 2]))]
        if rng.random() < 0.2:
            headers.append(AddedPlans(rng.choice([batch, *INNER]), self.plans(batch)))
        first = tasks[0].member
        assert first is not None  # noqa: S101 - made with one
        opens = replace(first, how="opens", opens=tuple(headers), parent=rng.choice(["", "", "", *BATCHES]))
        return self.ledger.submit([replace(tasks[0], member=opens), *tasks[1:]])

    def add(self) -> Call[Any]:
        batch = self.rng.choice([*BATCHES, *INNER])
        how = "adds" if self.rng.random() < 0.9 else "with"
        return self.ledger.submit([self.task(batch, how) for _ in range(self.rng.choice([1, 1, 3]))])

    def open_batch(self) -> Call[Any]:
        return self.ledger.open_batch(self.header(self.rng.choice(BATCHES)))

    def extend_batch(self) -> Call[Any]:
        return self.ledger.extend_batch(self.rng.choice([*BATCHES, *INNER]))

    def seal_batch(self) -> Call[Any]:
        return self.ledger.seal_batch(self.rng.choice([*BATCHES, *INNER]), abandoned=self.rng.random() < 0.3)

    def cancel_batch(self) -> Call[Any]:
        rng = self.rng
        return self.ledger.cancel_batch(
            rng.choice([*BATCHES, *INNER]), rng.choice(["", "", "0", "1"]), rng.choice([1, 9])
        )

    def batch(self) -> Call[Any]:
        return self.ledger.batch(self.rng.choice([*BATCHES, *INNER]))

    def members_of(self) -> Call[Any]:
        rng = self.rng
        return self.ledger.members(rng.choice(BATCHES), rng.choice([None, *Stage]), skip=rng.choice([0, 1]))

    def results(self) -> Call[Any]:
        return self.ledger.results(self.rng.choice([*BATCHES, *INNER]), field=self.rng.choice(["", "0", ">n1"]))

    def commit_plain(self) -> Call[Any]:
        return self.ledger.commit([(lease, self.rng.choice([None, b"", b"r"]), ()) for lease in self.leases()])
