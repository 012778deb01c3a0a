"""Workers of a namespace with shards, in processes of their own, and what its ledger says at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from relier.cli.audit import audit
from relier.errors import RelierError
from relier.ledger.pages import read_stats
from relier.settings import Settings, environment
from relier.settings.shards import shard_of
from relier.states import State
from relier.submit.client import Client
from tests.support import PYTHONPATH
from tests.support.fleet import UNHANDLED, Member, wait_until


class ShardedFleet:
    """The processes that a test starts in one namespace."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.client = Client(settings)
        self.members: list[Member] = []
        self._folder = folder

    def start(self, *arguments: str) -> Member:
        """Start `rl <arguments>`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RELIER_")}
        log = self._folder / f"log{len(self.members)}"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "relier.cli", *arguments],
                cwd=self._folder,
                env=kept | environment(self.settings) | {"PYTHONPATH": PYTHONPATH},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.members.append(Member(process, log))
        return self.members[-1]

    def worker(self, *arguments: str, processes: int = 0) -> Member:
        """Start a worker with one process for each shard, or with `processes`, and wait until all have started."""
        member = self.start("worker", "tests.support.jobs.sharded", *arguments)
        member.wait_said(" started: queues=", processes or self.settings.shards, 120)
        return member

    def close(self) -> None:
        for member in self.members:
            member.kill_all()
        self.client.close()

    def states(self, ids: Iterable[str]) -> Counter[str]:
        """Return how many of these tasks are in which state; `away` if their shard did not answer."""
        homes: dict[int, list[str]] = {}
        for each in ids:
            homes.setdefault(shard_of(each, self.settings.shards), []).append(each)
        found: Counter[str] = Counter()
        for shard, here in homes.items():
            client = self.client.shards[shard]
            answers = client.sync_store.run_many(client.ledger.get(each) for each in here)
            found.update("away" if isinstance(each, RelierError) else each.record.state.value for each in answers)
        return found

    def wait_done(self, ids: Iterable[str], seconds: float = 300.0) -> None:
        wanted = list(ids)
        last = Counter[str]()

        def all_done() -> bool:
            nonlocal last
            last = self.states(wanted)
            return last == {State.DONE: len(wanted)}

        try:
            wait_until(all_done, seconds, "the end of all tasks")
        except AssertionError as error:
            logs = "\n".join(member.said()[-3000:] for member in self.members)
            raise AssertionError(f"{error}: {dict(last)}\n{logs}") from None

    def counts(self) -> Counter[str]:
        """Return the ledgers' counters, summed over the shards."""
        found: Counter[str] = Counter()
        for shard in self.client.shards:
            found.update(read_stats(shard.run, shard.ledger).counts)
        return found

    def check(self, ids: list[str]) -> None:
        """Check by counting that each task was accepted once and is done once, and that no ledger has anything else."""
        counts = self.counts()
        assert counts["submitted"] == len(ids), "lost or doubled pushes"
        assert counts["done"] == len(ids), "lost or doubled commits"
        assert counts["dead"] == counts["cancelled"] == 0
        for shard in self.client.shards:
            report = audit(shard.sync_store, shard.ledger)
            assert report.ok, [finding.problem for finding in report.findings]
        for member in self.members:
            told = member.said()
            assert not (found := [text for text in UNHANDLED if text in told]), f"{found} in a log:\n{told[-4000:]}"

    def children(self, member: Member) -> dict[int, int]:
        """Return process id -> shard of the workers that a supervisor has started and that still run."""
        started = re.findall(r"worker process pid=(\d+) started shard=(\d+)", member.said())
        alive = set(member.session())
        return {int(pid): int(shard) for pid, shard in started if int(pid) in alive}
