"""Claim and run attempts of tasks by hand, with a table of payments and one of marks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, Table, func, select

from relier import Client, Durability
from relier.ledger.records import Claimed, Submission, new_worker_id
from relier.options import PushOptions
from relier.outbox.sqlalchemy.tables import inbox_table
from relier.run.attempt import Attempt, open_attempt
from relier.run.channel import LedgerChannel
from relier.run.execute import execute
from relier.run.threads import Threads
from relier.submit.push import NO_OPTIONS, submission_of

metadata = MetaData()
paid = Table("paid", metadata, Column("id", Integer, primary_key=True), Column("order_no", Integer))
marks = inbox_table(metadata)
where: dict[str, Any] = {}


class Desk:
    """Claims and runs attempts of tasks by hand."""

    def __init__(self, client: Client, engine: Engine) -> None:
        self.client = client
        self.engine = engine
        self.line = LedgerChannel(client)
        self.threads = Threads()

    def push(self, task: Any, *args: Any, **options: Any) -> Submission:
        chosen = PushOptions(**options) if options else NO_OPTIONS
        sent = submission_of(task, args, {}, chosen, Durability.MEMORY, self.client.settings)
        self.client.submit([sent], None, sent.durability)
        return sent

    def claim(self) -> Claimed:
        boot, run, ledger = new_worker_id(), self.client.run, self.client.ledger
        run(ledger.register(boot, 60_000))
        (claimed,) = run(ledger.claim(boot, 1, ["default"], 1)).tasks
        return claimed

    async def run(self, claimed: Claimed) -> Any:
        attempt = open_attempt(claimed, self.line)
        assert isinstance(attempt, Attempt)
        return await execute(attempt, self.threads, self.line)

    def payments(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(paid)).scalar_one())
