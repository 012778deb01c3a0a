"""The outbox compared with its closest peer, django-celery-outbox: latency, rate, and the cost of outages and poison.

    python -m bench.outbox [--quick] [--database mariadb] [--ordered] [--repeatable-read]

Run it in an environment of requirements/bench.lock and this package. Both use the same PostgreSQL, in turns; on MariaDB
there is no peer. Latency is the time from the commit until the record exists (for the peer: the message). To compare
like with like, both relays send Celery messages to the same Redis.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from bench.fleets import Table, leave, quantile
from bench.outbox_desk import KEYS, REPEATABLE_READ, Desk, a_desk, a_server, modes, outbox
from relier import Client
from relier.ledger import keys
from relier.ledger.records import Submission
from relier.outbox.row import new_row
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.outbox.table.statements import DeadRowFilter, OutboxTable
from tests.support import PYTHONPATH, ROOT
from tests.support.databases import MariaDB, Postgres
from tests.support.servers import Server, wait_until

PEER = "bench.peers.outbox_django"
THREADS = 4  # threads that publish, if there are several
HOLDER = """
import sys, time
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.relay import relay_to_ledger
from relier.outbox.sqlalchemy.engines import EngineDatabase
from relier.submit.client import default_client
relay = relay_to_ledger(EngineDatabase(sys.argv[1]), default_client())
relay._membership.begin()
print(len(relay._exchange(ClaimedBatch(relay.relay_id), 100).rows), flush=True)
time.sleep(600)
"""


# --- how soon --------------------------------------------------------------------------------------------------------


def latencies(desk: Desk, samples: int, first: int) -> list[float]:
    """Return the latencies of single commits into an idle outbox (s)."""
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
    env = {**os.environ, "BENCH_DATABASE": desk.database, "BENCH_BROKER": broker.tcp_url, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", PEER, *order]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)


def ask_peer(desk: Desk, broker: Server, *order: str) -> list[float]:
    with peer(desk, broker, *order) as process:
        told, _ = process.communicate(timeout=600)
    answer: list[float] = json.loads(told.splitlines()[-1])
    return answer


# --- how fast --------------------------------------------------------------------------------------------------------


def rate(desk: Desk, count: int, first: int, *options: str, keys: int | None = None) -> float:
    """Return the rows per second of one relay, from a backlog."""
    for start in range(0, count, 1000):
        desk.push(first + start, min(1000, count), keys=keys)
    before = desk.submitted()
    relay = desk.relay("--log-level", "warning", *options)
    wait_until(lambda: desk.submitted() > before, 60)
    began, done = time.perf_counter(), desk.submitted()
    wait_until(lambda: desk.submitted() == before + count, 300)
    took = time.perf_counter() - began
    desk.end(relay)
    return (before + count - done) / took


def celery_rate(desk: Desk, broker: Server, count: int, *options: str) -> float:
    """Return the same for Celery messages, which one relay sends to a Redis broker."""
    os.environ["BENCH_BROKER"] = broker.tcp_url
    from bench.peers.outbox_celery_app import app, receipt
    from relier.celery.outbox import send_through

    send_through(app, outbox)
    for _ in range(0, count, 100):
        with Session(desk.engine) as session, session.begin(), outbox.using(session):
            for order in range(100):
                receipt.delay(order)
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        before = client.llen("celery")
        where = ("--celery-app", "bench.peers.outbox_celery_app:app", "--no-ledger")
        relay = desk.relay("--log-level", "warning", *where, *options)
        wait_until(lambda: client.llen("celery") > before, 60)
        began, done = time.perf_counter(), client.llen("celery")
        wait_until(lambda: client.llen("celery") >= before + count, 300)
        took = time.perf_counter() - began
    desk.end(relay)
    return (before + count - done) / took


def beside_relays(desk: Desk, transactions: int, first: int, isolation: str | None) -> tuple[int, int, float]:
    """Run transactions in six threads that push while three relays run. Return how many succeeded, failed, and ran per
    second."""
    engine = create_engine(desk.database, pool_size=6, **({"isolation_level": isolation} if isolation else {}))
    relays = [desk.relay("--log-level", "error", "--batch-size", "20") for _ in range(3)]
    failed: list[DBAPIError] = []

    def push(thread: int) -> None:
        for n in range(transactions // 6):
            try:
                with Session(engine) as session, session.begin():
                    for part in range(3):
                        with session.begin_nested() as savepoint:
                            outbox.add(session, desk.task(first + n, desk.keys), first + n)
                            session.flush()
                            if part == 1 and thread % 2:
                                savepoint.rollback()
            except DBAPIError as error:
                failed.append(error)

    threads = [threading.Thread(target=push, args=(n,)) for n in range(6)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    wait_until(lambda: desk.rows() == 0, 120)
    desk.end(*relays)
    engine.dispose()
    return transactions // 6 * 6, len(failed), transactions / took


# --- what trouble costs ----------------------------------------------------------------------------------------------


def held_by_the_dead(desk: Desk, rounds: int, first: int) -> list[float]:
    """Return the seconds until another relay sends the rows of a relay that was killed."""
    took = []
    relay = desk.relay("--log-level", "warning")
    desk.push(first - 1, 1)
    wait_until(lambda: desk.rows() == 0, 60)
    relay.send_signal(19)  # SIGSTOP, so that the other relay claims the rows first
    for n in range(rounds):
        desk.push(first + 100 * n, 100)
        command = [sys.executable, "-c", HOLDER, desk.database]
        with subprocess.Popen(command, env=desk.env(), stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert int(holder.stdout.readline()) == 100
            relay.send_signal(18)
            time.sleep(1.5)  # it has registered again, and knows which relay holds the rows
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
    """Put two rows that cannot be sent before fifty that can. Return the seconds until those are sent, and how many
    rows are dead."""
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
    rows = OutboxTable(database.dialect, outbox.table.name)

    def dead() -> int:
        with database.begin() as tx:
            return rows.count_dead(tx, DeadRowFilter())

    wait_until(lambda: dead() == 2, 60)
    desk.end(relay)
    with database.begin() as tx:
        rows.purge(tx, DeadRowFilter())
    return took, 2


def outage(databases: Postgres | MariaDB, count: int) -> tuple[int, int]:
    """Run three relays while the store is killed and comes back. Return how many records there are,
    and how many rows are left."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "srv", config={"appendonly": "yes"}).start()
        with a_desk(databases, server) as desk:
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
            reading = Client(desk.settings)  # the circuit breaker of this process's own client may still be open
            counts = reading.run(reading.ledger.stats()).counts
            reading.close()
            found = counts.get("submitted", 0), desk.rows()
        server.kill()
    return found


def backlog(desk: Desk, rows: int) -> tuple[float, float, float]:
    """With this many rows waiting, measure in ms: the depth, a claim of 100 with its release, and a claim that finds
    nothing."""
    columns = "task_id, kind, name, queue, order_key, body, created_at, due_at"
    numbers = f"generate_series(1, {rows}) n" if desk.engine.dialect.name == "postgresql" else f"seq_1_to_{rows}"
    with desk.engine.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO relier_outbox ({columns}) SELECT 't', 'ledger', 'shop.receipt', 'default', '', '', "
                f"0, 9000000000000 FROM {numbers}"
            )
        )
    database = EngineDatabase(desk.engine)
    table = OutboxTable(database.dialect, outbox.table.name)

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
    depth, some = timed(due=True)
    return depth, some, nothing


def tell(table: Table, what: str, took: Sequence[float], p50: float | None, p95: float | None) -> None:
    for share, limit in ((0.5, p50), (0.95, p95)):
        value, name = 1000 * quantile(took, share), f"{what}: p{100 * share:.0f}"
        table.line(name, round(value, 2), "ms") if limit is None else table.most(name, round(value, 2), limit, "ms")


def how_soon(desk: Desk, broker: Server | None, samples: int, rounds: int) -> Table:
    woken: list[float] = []
    alone: list[float] = []
    theirs: list[float] = []
    for n in range(rounds):
        first = 1_000_000 * (n + 1)
        for options, took, start in ((), woken, first), (("--no-wake",), alone, first + 1000):
            relay = desk.relay("--log-level", "warning", *options)
            desk.push(start + 999, 1)
            wait_until(lambda: desk.rows() == 0, 60)
            took += latencies(desk, samples, start)
            desk.end(relay)
        if broker is not None:
            theirs += ask_peer(desk, broker, "latency", str(max(5, samples // 4)))
    table = Table("From the commit to the record, idle")
    tell(table, "woken by the commit", woken, 10, 50)
    tell(table, "by polling alone", alone, 200, None)
    if broker is not None:
        tell(table, "django-celery-outbox", theirs, None, None)
    return table


def how_fast(desk: Desk, broker: Server | None, count: int, peers: int, rounds: int) -> Table:
    found: dict[str, list[float]] = {}

    def add(what: str, value: float) -> None:
        found.setdefault(what, []).append(value)

    threads = ("--publish-concurrency", str(THREADS))
    for n in range(rounds):
        first = 100_000_000 + 10_000_000 * n
        add("records", rate(desk, count, first))
        add(f"records, {THREADS} threads publish", rate(desk, count, first + 1_000_000, *threads))
        for many in (1, 10, 100):
            start = first + 2_000_000 + 30_000 * many
            add(f"records, --ordered, keys: {many}", rate(desk, count, start, "--ordered", keys=many))
        if broker is not None:
            add("Celery messages", celery_rate(desk, broker, count))
            add("django-celery-outbox", ask_peer(desk, broker, "rate", str(peers), "1")[0])
            more = ask_peer(desk, broker, "rate", str(peers), str(THREADS))[0]
            add(f"django-celery-outbox, --publish-concurrency {THREADS}", more)
    table = Table("One relay, rows per second from a backlog; medians")
    medians = {what: statistics.median(values) for what, values in found.items()}
    for what, value in medians.items():
        target = ("≥ 5000 /s", value >= 5000) if what == "records" else ()
        table.line(what, round(value), "/s", *target)
    if broker is not None:
        best = max(value for what, value in medians.items() if what.startswith("django"))
        table.line("records / the peer at its best", medians["records"] / best, "×")
        ratio = medians["Celery messages"] / best
        table.line("like for like: Celery messages / the peer at its best", ratio, "×", "≥ 5 ×", ratio >= 5)
    return table


def trouble_costs(desk: Desk, databases: Postgres | MariaDB, short: bool) -> Table:
    table = Table("Trouble")
    held = held_by_the_dead(desk, 2 if short else 5, 50_000_000)
    table.most("rows of a relay that was killed are sent after, longest", max(held), 5, "s")
    took, dead = poison(desk, 60_000_000)
    table.line("50 good rows behind 2 bad ones: all sent after", took, "s")
    table.exactly("bad rows that are dead, with their exceptions", dead, 2)
    records, left = outage(databases, 300)
    table.exactly("3 relays, store away and back: records of 300 rows", records, 300)
    table.exactly("rows left", left, 0)
    return table


def pushes_beside_relays(desk: Desk, transactions: int, isolation: str | None) -> Table:
    table = Table(f"Six threads push, three relays send; producers at {isolation or 'the default isolation level'}")
    made, failed, per_s = beside_relays(desk, transactions, 70_000_000, isolation)
    table.line("transactions", made)
    table.exactly("transactions that failed", failed, 0)
    table.line("transactions per second", round(per_s), "/s")
    return table


def large_backlog(desk: Desk, rows: int) -> Table:
    table = Table(f"A backlog of {rows:,} rows, never vacuumed; medians")
    depth, some, nothing = backlog(desk, rows)
    table.line("depth, oldest age and dead", depth, "ms")
    table.line("claim of 100", some, "ms")
    table.line("claim that finds nothing due", nothing, "ms")
    return table


def main() -> None:
    mode = modes()
    short = mode.quick
    samples, count, peers, rounds = (10, 5_000, 1_000, 1) if short else (60, 20_000, 3_000, 3)
    isolation = REPEATABLE_READ if mode.repeatable_read else None
    with a_server(mode.database) as server, tempfile.TemporaryDirectory() as folder:
        broker = Server(Path(folder) / "broker").start() if mode.database == "postgres" else None
        with a_desk(server, isolation=isolation, keys=KEYS if mode.ordered else 0) as desk:
            if broker is not None:
                ask_peer(desk, broker, "migrate")
            tables = [
                how_soon(desk, broker, samples, rounds),
                how_fast(desk, broker, count, peers, rounds),
                pushes_beside_relays(desk, 600 if short else 6_000, isolation),
                trouble_costs(desk, server, short),
                large_backlog(desk, 10_000 if short else 1_000_000),
            ]
        if broker is not None:
            broker.kill()
    leave(*tables)


if __name__ == "__main__":
    main()
