"""The outbox beside the best of its kind, django-celery-outbox: how soon, how fast, and what an outage or poison costs.

    python bench/outbox.py [--quick]

in an environment of requirements/bench.lock and this package. PostgreSQL is the same for both, in turns; the peer
publishes to a Redis of its own. Latency is from the commit to the moment the record (the peer: the message) is there.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fleets import ROOT, Table, leave, quantile, quick
from outbox_desk import Desk, a_desk, a_postgres, outbox
from sqlalchemy import text

from databases import Postgres
from relier.ledger import keys
from relier.ledger.records import Submission
from relier.outbox.engines import EngineDatabase
from relier.outbox.row import new_row
from relier.outbox.rows import Rows, Wanted
from servers import Server, wait_until

PEER = "bench.peers.outbox_django"
HOLDER = """
import sys, time
from relier.outbox.relay import Batch, relay_to_ledger
from relier.outbox.engines import EngineDatabase
from relier.submit.client import default_client
relay = relay_to_ledger(EngineDatabase(sys.argv[1]), default_client())
relay._membership.begin()
print(len(relay._exchange(Batch(relay.boot), 100).rows), flush=True)
time.sleep(600)
"""


# --- how soon --------------------------------------------------------------------------------------------------------


def latencies(desk: Desk, samples: int, first: int) -> list[float]:
    """Of single commits into an idle outbox (s)."""
    store, took = desk.client.sync_store, []
    for n in range(samples):
        time.sleep(random.uniform(0.05, 0.35))
        (task,) = desk.push(first + n, 1)
        committed = time.perf_counter()
        key = keys.spell(desk.client.ledger.prefix, "task", task)
        while not store.command("EXISTS", key):
            pass
        took.append(time.perf_counter() - committed)
    return took


def peer(desk: Desk, broker: Server, *order: str) -> subprocess.Popen[str]:
    env = {**os.environ, "BENCH_DATABASE": desk.database, "BENCH_BROKER": broker.tcp_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", PEER, *order]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)


def ask_peer(desk: Desk, broker: Server, *order: str) -> list[float]:
    with peer(desk, broker, *order) as process:
        told, _ = process.communicate(timeout=600)
    answer: list[float] = json.loads(told.splitlines()[-1])
    return answer


# --- how fast --------------------------------------------------------------------------------------------------------


def rate(desk: Desk, count: int, first: int, *options: str) -> float:
    """Rows per second of one relay, from a backlog."""
    for start in range(0, count, 1000):
        desk.push(first + start, 1000)
    before = desk.submitted()
    relay = desk.relay("--log-level", "warning", *options)
    wait_until(lambda: desk.submitted() > before, 60)
    began, done = time.perf_counter(), desk.submitted()
    wait_until(lambda: desk.submitted() == before + count, 300)
    took = time.perf_counter() - began
    desk.end(relay)
    return (before + count - done) / took


# --- what trouble costs ----------------------------------------------------------------------------------------------


def held_by_the_dead(desk: Desk, rounds: int, first: int) -> list[float]:
    """Seconds until the rows of a relay that was killed are sent by another."""
    took = []
    relay = desk.relay("--log-level", "warning")
    desk.push(first - 1, 1)
    wait_until(lambda: desk.rows() == 0, 60)
    relay.send_signal(19)  # SIGSTOP: the holder shall have the rows first
    for n in range(rounds):
        desk.push(first + 100 * n, 100)
        command = [sys.executable, "-c", HOLDER, desk.database]
        with subprocess.Popen(command, env=desk.env(), stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) == 100
            relay.send_signal(18)
            time.sleep(1.5)  # it has joined again, and knows the holder
            assert desk.rows() == 100
            holder.kill()
            killed = time.perf_counter()
        wait_until(lambda: desk.rows() == 0, 60)
        took.append(time.perf_counter() - killed)
        relay.send_signal(19)
    relay.send_signal(18)
    desk.end(relay)
    return took


def poison(desk: Desk, first: int) -> tuple[float, int]:
    """Two rows that cannot be sent before fifty that can: seconds until those are sent, and how many are dead then."""
    bad = [new_row(Submission(id=f"no id {n}", name="shop.receipt", payload=b"x"), None) for n in range(2)]
    with desk.engine.begin() as connection:
        outbox.insert(connection, bad)
    desk.push(first, 50)
    before = desk.submitted()
    relay = desk.relay("--log-level", "error", "--max-retries", "2", "--backoff-time", "0.1")
    began = time.perf_counter()
    wait_until(lambda: desk.submitted() == before + 50, 60)
    took = time.perf_counter() - began
    database = EngineDatabase(desk.engine)
    rows = Rows(database.dialect, outbox.table.name)

    def dead() -> int:
        with database.begin() as tx:
            return rows.count_dead(tx, Wanted())

    wait_until(lambda: dead() == 2, 60)
    desk.end(relay)
    with database.begin() as tx:
        rows.purge(tx, Wanted())
    return took, 2


def outage(postgres: Postgres, count: int) -> tuple[int, int]:
    """Three relays, the store killed under them and back: how many records there are of so many rows, and rows left."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "srv", config={"appendonly": "yes"}).start()
        with a_desk(postgres, server) as desk:
            for _ in range(3):
                desk.relay("--broker-outage-cooldown", "1", "--send-timeout", "1", "--log-level", "error")
            desk.push(0, 50)
            wait_until(lambda: desk.rows() == 0, 60)
            server.kill()
            for n in range(50, count, 50):
                desk.push(n, 50)
            time.sleep(5)
            server.start()
            wait_until(lambda: desk.rows() == 0, 120)
            found = desk.submitted(), desk.rows()
        server.kill()
    return found


def backlog(desk: Desk, rows: int) -> tuple[float, float, float]:
    """With so many rows waiting: ms of the depth, of a claim of 100 with its release, and of one that finds nothing."""
    columns = "task_id, kind, name, queue, order_key, body, created_at, due_at"
    with desk.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO relier_outbox ({columns}) SELECT 't' || n, 'ledger', 'shop.receipt', 'default', '', '', "
                f"0, 9000000000000 FROM generate_series(1, {rows}) n"
            )
        )
    with desk.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE relier_outbox"))
    database = EngineDatabase(desk.engine)
    table = Rows(database.dialect, outbox.table.name)

    def timed(due: bool) -> tuple[float, float]:
        took_depth, took_claim = [], []
        for _ in range(15):
            began = time.perf_counter()
            with database.begin() as tx:
                table.depth(tx)
            took_depth.append(time.perf_counter() - began)
            began = time.perf_counter()
            with database.begin() as tx:
                claimed = table.claim(tx, "bench", 100, 300_000, None)
            took_claim.append(time.perf_counter() - began)
            assert bool(claimed) is due
            with database.begin() as tx:
                table.release(tx, "bench", [row.id for row in claimed])
        return 1000 * statistics.median(took_depth), 1000 * statistics.median(took_claim)

    _, nothing = timed(due=False)
    with desk.engine.begin() as connection:
        connection.execute(text("UPDATE relier_outbox SET due_at = 0"))
    with desk.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE relier_outbox"))
    depth, some = timed(due=True)
    return depth, some, nothing


def tell(table: Table, what: str, took: Sequence[float], p50: float | None, p95: float | None) -> None:
    for share, limit in ((0.5, p50), (0.95, p95)):
        value, name = 1000 * quantile(took, share), f"{what}: p{100 * share:.0f}"
        table.line(name, round(value, 2), "ms") if limit is None else table.most(name, round(value, 2), limit, "ms")


def main() -> None:
    short = quick()
    samples, count, peers, rounds = (10, 2_000, 300, 1) if short else (60, 20_000, 3_000, 3)
    with a_postgres() as postgres, tempfile.TemporaryDirectory() as folder:
        broker = Server(Path(folder) / "broker").start()
        with a_desk(postgres) as desk:
            ask_peer(desk, broker, "migrate")
            woken, alone, theirs, rates, their_rates, threaded = [], [], [], [], [], []
            for n in range(rounds):
                first = 1_000_000 * (n + 1)
                relay = desk.relay("--log-level", "warning")
                desk.push(first - 1, 1)
                wait_until(lambda: desk.rows() == 0, 60)
                woken += latencies(desk, samples, first)
                desk.end(relay)
                relay = desk.relay("--log-level", "warning", "--no-wake")
                desk.push(first - 2, 1)
                wait_until(lambda: desk.rows() == 0, 60)
                alone += latencies(desk, samples, first + 1000)
                desk.end(relay)
                theirs += ask_peer(desk, broker, "latency", str(max(5, samples // 4)))
                rates.append(rate(desk, count, first + 10_000))
                threaded.append(rate(desk, count, first + 100_000, "--publish-concurrency", "2"))
                their_rates += ask_peer(desk, broker, "rate", str(peers))
            soon = Table("From the commit to the record, idle")
            tell(soon, "woken by the commit", woken, 10, 50)
            tell(soon, "by polling alone", alone, 200, None)
            tell(soon, "django-celery-outbox", theirs, None, None)
            fast = Table("One relay, rows per second from a backlog; medians")
            ours, others = statistics.median(rates), statistics.median(their_rates)
            fast.line("relier", round(ours), "/s", "≥ 5000 /s", ours >= 5000)
            fast.line("relier, two threads publish", round(statistics.median(threaded)), "/s")
            fast.line("django-celery-outbox", round(others), "/s")
            fast.line("ratio", ours / others, "×")
            trouble = Table("Trouble")
            held = held_by_the_dead(desk, 2 if short else 5, 50_000_000)
            trouble.most("rows of a relay that was killed are sent after, longest", max(held), 5, "s")
            took, dead = poison(desk, 60_000_000)
            trouble.line("50 good rows behind 2 bad ones: all sent after", took, "s")
            trouble.exactly("bad rows that are dead, with their exceptions", dead, 2)
            records, left = outage(postgres, 300)
            trouble.exactly("3 relays, store away and back: records of 300 rows", records, 300)
            trouble.exactly("rows left", left, 0)
            many = Table(f"A backlog of {10_000 if short else 1_000_000:,} rows; medians")
            depth, some, nothing = backlog(desk, 10_000 if short else 1_000_000)
            many.line("depth, oldest age and dead", depth, "ms")
            many.line("claim of 100", some, "ms")
            many.line("claim that finds nothing due", nothing, "ms")
        broker.kill()
    leave(soon, fast, trouble, many)


if __name__ == "__main__":
    main()
