"""How soon the tasks of killed workers run again: for each task, the time from the kill -9 to the first line of the
next attempt.

    python -m bench.recovery [--quick]

a child      one of two processes under a supervisor is killed; the other one, and a new one, take over
a host       a whole worker is killed, with all its processes; another worker waits until the lease has run out
an only one  the only process under a supervisor is killed: Python has to start first. No target, for comparison
"""

from __future__ import annotations

import signal
import time

from bench.fleets import Table, a_fleet, leave, quick
from tests.support.fleet import Fleet, Line, Member
from tests.support.jobs import common as jobs

LEASE_S = 5.0  # the default
AT_ONCE = 50


def begun(fleet: Fleet, gate: str, count: int, before: int) -> list[Line]:
    """Start that many tasks, which run and wait for the gate."""
    jobs.hold.push_many([(gate,)] * count)
    return fleet.wait_diary("begin", before + count, 60)[before:]


def restarted(fleet: Fleet, orphans: set[str], killed: float) -> list[float]:
    """Wait until all orphans run again. Return the seconds since the kill, for each."""
    seconds: dict[str, float] = {}
    while orphans - seconds.keys():
        now = time.monotonic()
        if now > killed + 60:
            raise SystemExit(f"{len(orphans - seconds.keys())} of {len(orphans)} orphans did not run again in 60 s")
        seconds |= {line.task_id: line.at - killed for line in fleet.diary("begin") if line.attempt == 2}
        time.sleep(0.02)
    return [seconds[task_id] for task_id in orphans]


def kill_a_child(fleet: Fleet, rounds: int, processes: int) -> list[float]:
    """In each round, start tasks, kill the child that runs most of them, wait until all run again, and let all end."""
    member = fleet.worker("--processes", str(processes))
    seconds: list[float] = []
    for number in range(rounds):
        ran = begun(fleet, f"child{number}", AT_ONCE, len(fleet.diary("begin")))
        pids = [line.pid for line in ran]
        victim = max(set(pids), key=pids.count)
        killed = time.monotonic()
        member.signal(signal.SIGKILL, victim)
        seconds += restarted(fleet, {line.task_id for line in ran if line.pid == victim}, killed)
        fleet.open_gate(f"child{number}")
        fleet.wait_done([line.task_id for line in ran], 30)
        member.wait_said(" started: queues=", processes + number + 1, 60)
    member.terminate()
    return seconds


def kill_a_host(fleet: Fleet, rounds: int) -> list[float]:
    """In each round, start tasks on one worker, start another worker, and kill the first with all its processes."""
    seconds: list[float] = []
    victim: Member = fleet.worker("--processes", "2")
    for number in range(rounds):
        ran = begun(fleet, f"host{number}", AT_ONCE, len(fleet.diary("begin")))
        survivor = fleet.worker("--processes", "2")
        killed = time.monotonic()
        victim.kill_all()
        seconds += restarted(fleet, {line.task_id for line in ran}, killed)
        fleet.open_gate(f"host{number}")
        fleet.wait_done([line.task_id for line in ran], 30)
        victim = survivor
    victim.terminate()
    return seconds


def main() -> None:
    rounds = 1 if quick() else 4
    table = Table(f"kill -9, {rounds * AT_ONCE} orphans each, lease {LEASE_S:g} s: seconds until a task runs again")
    with a_fleet(LEASE_S) as fleet:
        table.times("a child under the supervisor", kill_a_child(fleet, rounds, 2), 1.0)
    with a_fleet(LEASE_S) as fleet:
        table.times("everything on the host", kill_a_host(fleet, rounds), LEASE_S + 1)
    with a_fleet(LEASE_S) as fleet:
        table.times("the only child", kill_a_child(fleet, rounds, 1))
    leave(table)


if __name__ == "__main__":
    main()
