"""Write the outcome of each row of a batch: delete, release, defer, charge a retry, or bury."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Container

from relier.outbox.publish.target import Deferred, Outage, Outcome, SendFailed, Sent
from relier.outbox.relay.batch import ClaimedBatch
from relier.outbox.relay.options import RelayOptions
from relier.outbox.row import Row, storable
from relier.outbox.table.statements import OutboxTable, Transaction

log = logging.getLogger("relier.outbox")

OUTAGE_DEFER_S = 1.0  # a row that met an outage lets others try first


class BatchCloser:
    """Closes batches in the table. `show`: redacts the text of a task's error before it is stored and logged."""

    def __init__(self, rows: OutboxTable, options: RelayOptions, show: Callable[[str, str], str]) -> None:
        self._rows = rows
        self._options = options
        self._show = show

    def close(self, tx: Transaction, batch: ClaimedBatch, kept: Container[int] = ()) -> None:
        """Close a batch. `kept`: rows that stay leased by this relay."""
        sent: list[int] = []
        waits: dict[tuple[int, bool], list[int]] = {}
        for row in batch.rows:
            outcome = batch.outcomes.get(row.id)
            if isinstance(outcome, Sent):
                sent.append(row.id)
            elif isinstance(outcome, SendFailed):
                self._charge(tx, batch.relay_id, row, outcome)
            elif row.id not in kept:
                waits.setdefault((_later_ms(outcome), not isinstance(outcome, Outage)), []).append(row.id)
        self._rows.delete(tx, batch.relay_id, sent)
        for (later, untried), ids in waits.items():
            self._rows.release(tx, batch.relay_id, ids, later, untried=untried)

    def _charge(self, tx: Transaction, relay_id: str, row: Row, failed: SendFailed) -> None:
        """Charge a retry to a row that is at fault. Each wait is longer, and after the last retry the row is dead."""
        texts = _error_text(failed.error), str(failed.error)
        why, short = (self._show(row.name, storable(text)) for text in texts)
        if failed.final or row.retries >= self._options.max_retries:
            log.error("outbox row is dead: task=%s id=%s error=%s", row.name, row.task_id, short)
            self._rows.bury(tx, relay_id, row.id, why)
        else:
            later = self._options.backoff(row.retries)
            log.warning("row not sent: task=%s id=%s retry_in=%.0fs error=%s", row.name, row.task_id, later, short)
            self._rows.fail(tx, relay_id, row.id, round(1000 * later), why)


def _later_ms(outcome: Outcome | None) -> int:
    """Return after how long an unsent row is due again: at once if it was not tried."""
    if isinstance(outcome, Deferred):
        return max(1, round(1000 * outcome.seconds))
    return round(1000 * OUTAGE_DEFER_S) if isinstance(outcome, Outage) else 0


def _error_text(error: BaseException) -> str:
    trace = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}: {error}\n\n{trace}"
