"""`make demo`: workers are killed and frozen while thousands of tasks run, and nothing is lost.

The demo has its own store in a temporary folder, real `rl worker` processes, and a producer that keeps pushing. At the
end it prints what the ledger says about every task, and exits with a non-zero code unless each is done, and was
committed once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from relier import Client, Settings, use_client
from relier.errors import RelierError

from .crew import Crew, Member, send
from .producer import Producer
from .verdict import judge
from .view import View
from .watch import Snapshot, Watch

LEASE_S = 3.0
SAMPLE_S = 0.1
QUIET_S = 2.5
BUSY = 5  # how many tasks a worker must run to be worth killing
PATIENCE_S = 20.0  # the longest wait for one event: a busy machine is slow
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUEUES = ("--queues", "reports,default", "--concurrency", "30")


class DemoError(Exception):
    """An expected event did not happen."""


class Demo:
    """One run of the demo."""

    def __init__(self, client: Client, crew: Crew, view: View) -> None:
        self.client = client
        self.crew = crew
        self.view = view
        self.producer = Producer(client)
        self._watch = Watch(client, crew)

    def run(self) -> None:
        self.crew.start(*QUEUES)
        self.crew.start(*QUEUES)
        self.crew.start(*QUEUES, "--processes", "2")
        self.view.tell("two workers start, and a third with two processes under a supervisor")
        self._wait("four worker processes", lambda seen: len(seen.held) == 4)
        self.producer.start()
        self.view.tell("the producer begins to push, and does not stop")
        for strike in (self._kill_one, self._freeze_one, self._kill_a_child, self._kill_everybody):
            self._let_work()
            strike()
        self.producer.stop()
        pushed = len(self.producer.ids)
        self.view.tell(f"the producer stops: {pushed:,} tasks were pushed")
        self._wait("the end of every task", lambda seen: seen.pushed == pushed and not seen.live)
        codes = self.crew.leave()
        self.view.tell(f"SIGTERM: the workers leave, exit codes {', '.join(map(str, codes.values()))}")
        self._look()

    # --- the strikes ---------------------------------------------------------------------------------------------

    def _kill_one(self) -> None:
        first = self.crew.members[0]
        self._wait_until_busy(first.pid)
        self.crew.kill(first)
        began, seen = time.monotonic(), self._look()
        held = seen.held[first.pid]
        self.view.tell(f"kill -9 {first.name} (process {first.pid}) with {held} tasks in hand")
        self._wait_until_revived(seen.revived + held)
        self.view.tell(f"   its lease ran out: {held} tasks run again after {time.monotonic() - began:.1f} s")
        again = self.crew.start(*QUEUES)
        self.view.tell(f"   {again.name} starts in its place")

    def _freeze_one(self) -> None:
        second = self.crew.members[1]
        self._wait_until_busy(second.pid)
        self.crew.freeze(second)
        began, seen = time.monotonic(), self._look()
        held = seen.held[second.pid]
        self.view.tell(f"SIGSTOP freezes {second.name} (process {second.pid}) with {held} tasks in hand")
        self._wait_until_revived(seen.revived + held)
        self.view.tell(f"   its lease ran out: {held} tasks run again after {time.monotonic() - began:.1f} s")
        self._let_work()
        self.crew.thaw(second)
        self.view.tell(f"   SIGCONT wakes {second.name}, a zombie: it believes that it holds its tasks")
        self._wait("a refused zombie", lambda now: now.refused > seen.refused)
        self._wait("the zombie's return", lambda now: second.pid in now.held)
        time.sleep(0.5)  # the last of them arrive
        self.view.tell(f"   {self._look().refused - seen.refused} late commits refused; it goes on as a new worker")

    def _kill_a_child(self) -> None:
        third = self.crew.members[2]
        self._wait("two children", lambda _: len(third.children) == 2)
        child = min(third.children)
        self._wait_until_busy(child)
        revived = self._look().revived
        send(child, signal.SIGKILL)
        began = time.monotonic()
        self.view.tell(f"kill -9 process {child}, a child of {third.name}")
        after = self._wait_until_revived(revived + 1)
        held = after.revived - revived
        self.view.tell(f"   its supervisor saw it: {held} tasks run again after {time.monotonic() - began:.1f} s")

    def _kill_everybody(self) -> None:
        self.crew.kill(*(member for member in self.crew.members if member.running))
        seen = self._look()
        self.view.tell(f"kill -9 everybody, {seen.running} tasks in hand; only the store and the producer are left")
        self._let_work()
        self.crew.start(*QUEUES)
        self.crew.start(*QUEUES, "--processes", "2")
        began = time.monotonic()
        self.view.tell("   two new workers start, one of them with two processes")
        self._wait_until_revived(seen.revived + seen.running)
        self.view.tell(f"   they found the dead: {seen.running} tasks run again after {time.monotonic() - began:.1f} s")

    # --- looking and waiting -------------------------------------------------------------------------------------

    def _look(self) -> Snapshot:
        seen = self._watch.look()
        self.view.show(seen)
        return seen

    def _wait(self, what: str, until: Callable[[Snapshot], bool]) -> Snapshot:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            seen = self._look()
            if until(seen):
                return seen
            if self.producer.error is not None:
                raise DemoError(f"the producer failed: {self.producer.error!r}")
            if time.monotonic() > deadline:
                raise DemoError(f"waited {PATIENCE_S:g} s for {what}, in vain")
            time.sleep(SAMPLE_S)

    def _let_work(self) -> None:
        """Wait a moment, so that people can read what happened."""
        until = time.monotonic() + QUIET_S
        self._wait("a moment", lambda _: time.monotonic() > until)

    def _wait_until_busy(self, pid: int) -> None:
        self._wait(f"process {pid} to have work", lambda seen: seen.held.get(pid, 0) >= BUSY)

    def _wait_until_revived(self, count: int) -> Snapshot:
        return self._wait("a revival", lambda seen: seen.revived >= count)


def settings_in(folder: Path) -> Settings:
    for name in [name for name in os.environ if name.upper().startswith("RELIER_")]:
        del os.environ[name]  # the demo is the same for everybody
    place = f"embedded://{folder / 'store'}"
    return Settings(redis_url=place, namespace="demo", heartbeat_ttl=LEASE_S, admission_limit=0)


def environment_of(settings: Settings) -> dict[str, str]:
    given = ("redis_url", "namespace", "heartbeat_ttl", "admission_limit")
    return os.environ | {f"RELIER_{name.upper()}": str(getattr(settings, name)) for name in given}


def wait_for_the_store(folder: Path, seconds: float = 5.0) -> None:
    """Wait until the embedded server has ended, which it does after its last client has left."""
    with contextlib.suppress(OSError), (folder / "store" / "server.lock").open() as lock:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    for number in SIGNALS:
        signal.signal(number, interrupted)
    with tempfile.TemporaryDirectory(prefix="relier-demo-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        settings = settings_in(folder)
        client = Client(settings)
        use_client(client)
        crew, view = Crew(folder, environment_of(settings)), View()
        demo = Demo(client, crew, view)
        try:
            with view:
                demo.run()
            return judge(client, demo.producer.ids, view.console)
        except (DemoError, RelierError) as error:
            view.console.print(f"\nthe demo failed: {error}", style="bold red")
            tell_last_words(crew.members)
            return 1
        except KeyboardInterrupt:
            view.console.print("\ninterrupted: every process of the demo is ended")
            return 130
        finally:
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)  # the end is under way
            demo.producer.stop()
            crew.end()
            client.close()
            wait_for_the_store(folder)


def tell_last_words(members: list[Member]) -> None:
    for member in members:
        print(f"\n--- {member.name} (process {member.pid}) said last:\n{member.last_words()}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
