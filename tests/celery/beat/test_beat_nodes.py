"""Real `celery beat` processes on one ledger: killed, frozen, restarted with other entries."""

from __future__ import annotations

import json
import signal
from collections import Counter

from relier.ledger.schedule_records import ScheduleState, StoredSchedule
from tests.celery.beat.conftest import HERE
from tests.celery.conftest import Shop
from tests.support.fleet import Member, wait_until

SECOND, TWO, MINUTE, EDITED = "every second", "every two", "every minute", "edited"


def start(shop: Shop, *entries: str, argument: str = "first", command: tuple[str, ...] = ("beat",)) -> Member:
    env = {"BEAT_ENTRIES": json.dumps(entries), "BEAT_ARGUMENT": argument}
    options = ("-m", "celery", "-A", "tests.support.beat_app", *command)
    scheduler = ("--scheduler", "relier.celery:Beat", "-l", "INFO")
    return shop.fleet.python(*options, *scheduler, cwd=HERE, **shop.env, **env)


def beat(shop: Shop, *entries: str, argument: str = "first") -> Member:
    member = start(shop, *entries, argument=argument, command=("beat", "--pidfile="))
    member.wait_said("beat started: entries=", seconds=60)
    return member


def stored(shop: Shop, name: str) -> StoredSchedule:
    (found,) = shop.fleet.client.run(shop.fleet.ledger.schedules(f"shop:{name}")).schedules
    return found


def watch(shop: Shop, name: str, seen: dict[int, str], more: int) -> None:
    """Wait until `more` further occurrences have fired. `seen`: their intended times, and their tasks."""
    aim = len(seen) + more

    def has_enough() -> bool:
        for fire in stored(shop, name).fires:
            if fire.outcome == "fired":
                assert seen.setdefault(fire.intended_ms, fire.task_id) == fire.task_id
            else:  # no node checked in time: the machine was busy
                assert fire.outcome == "missed"
        return len(seen) >= aim

    wait_until(has_enough, 60, f"{more} more runs of {name}")


def submitted(shop: Shop) -> int:
    return shop.fleet.stats().counts.get("submitted", 0)


def fired_in_logs(*members: Member) -> Counter[str]:
    lines = [line for member in members for line in member.said().splitlines() if " fired task " in line]
    return Counter(line.rsplit(" ", 1)[1] for line in lines)


def test_three_nodes_send_each_occurrence_once_while_nodes_die_and_freeze(shop: Shop) -> None:
    entries = (SECOND, TWO, MINUTE)
    nodes = [beat(shop, *entries) for _ in range(3)]
    seen: dict[int, str] = {}
    watch(shop, SECOND, seen, 4)
    nodes[0].kill_all()
    watch(shop, SECOND, seen, 4)
    nodes[1].signal(signal.SIGSTOP)
    watch(shop, SECOND, seen, 4)
    nodes[1].signal(signal.SIGCONT)
    nodes.append(beat(shop, *entries))
    watch(shop, SECOND, seen, 4)
    for node in nodes[1:]:
        assert node.terminate() == 0
    fired = fired_in_logs(*nodes)
    assert set(fired.values()) == {1}
    unlogged = submitted(shop) - len(fired)
    assert unlogged in {0, 1}  # the node that was killed may have fired once without the time to log it
    assert set(seen.values()) - fired.keys() == set() or unlogged == 1
    assert stored(shop, TWO).fires
    assert len(set(seen.values())) == len(seen)


def test_an_occurrence_missed_while_no_node_ran_runs_once(shop: Shop) -> None:
    node = beat(shop, SECOND)
    watch(shop, SECOND, {}, 1)
    node.kill_all()
    before, fires = submitted(shop), len(stored(shop, SECOND).fires)
    wait_until(lambda: shop.fleet.stats().now_ms > (stored(shop, SECOND).next_ms or 0) + 3_000, 30, "time to pass")
    node = beat(shop, SECOND)
    watch(shop, SECOND, {}, 2)
    node.terminate()
    late = stored(shop, SECOND).fires[: -fires or None]
    assert [fire.outcome for fire in late[-2:]] == ["fired", "missed"]
    assert submitted(shop) - before == sum(fire.outcome == "fired" for fire in late)


def test_entries_are_removed_and_edited_by_a_restart(shop: Shop) -> None:
    node = beat(shop, SECOND, EDITED)
    watch(shop, EDITED, {}, 1)
    node.terminate()
    node = beat(shop, EDITED, argument="second")
    assert "shop:every second" in node.said()
    assert stored(shop, SECOND).state is ScheduleState.DISABLED
    last = stored(shop, EDITED).last
    wait_until(lambda: stored(shop, EDITED).last != last, 30, "a run of the edited entry")
    payload = shop.fleet.client.run(shop.fleet.ledger.get(stored(shop, EDITED).last)).payload
    assert b"second" in (payload or b"")
    node.terminate()


def test_a_worker_with_an_embedded_beat_runs_its_entries(shop: Shop) -> None:
    worker = start(shop, TWO, command=("worker", "-B", "-Q", "twos", "-c", "1", "--without-mingle", "--without-gossip"))
    worker.wait_said("beat started: entries=", seconds=60)
    seen: dict[int, str] = {}
    watch(shop, TWO, seen, 2)
    done = next(iter(seen.values()))
    wait_until(lambda: shop.fleet.client.run(shop.fleet.ledger.get(done)).record.state == "done", 30, "a run to end")
    worker.terminate()


def test_a_node_that_is_given_a_file_warns_of_it(shop: Shop) -> None:
    node = start(shop, SECOND, command=("beat", "--pidfile=", "-s", "elsewhere", "--max-interval", "2"))
    node.wait_said("does not use the schedule file elsewhere", seconds=60)
    node.wait_said("maxinterval -> 2.00 seconds")
    node.terminate()
