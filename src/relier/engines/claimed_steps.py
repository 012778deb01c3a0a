"""Complete claimed tasks that have more steps than one answer holds, such as the body of a large chord."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec.structs import replace

from relier.errors import RelierError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed, Lease
from relier.store import AsyncStore

log = logging.getLogger("relier.worker")


async def whole(
    tasks: Sequence[Claimed], store: AsyncStore, ledger: Ledger, release: Callable[[Sequence[Lease]], None]
) -> AsyncIterator[Claimed]:
    """Yield claimed tasks with all their steps, complete ones first.

    A task whose steps cannot be read is released, and a later claim tries again.
    """
    for claimed in tasks:
        if not claimed.steps_left:
            yield claimed
    for claimed in tasks:
        if claimed.steps_left:
            try:
                yield await _with_all_steps(claimed, store, ledger)
            except RelierError as error:
                log.warning("task %s is handed back: its steps cannot be read: %s", claimed.record.id, error)
                release([claimed.lease])


async def _with_all_steps(claimed: Claimed, store: AsyncStore, ledger: Ledger) -> Claimed:
    steps, left = dict(claimed.steps), claimed.steps_left
    while left:
        more, left = await store.run(ledger.steps(claimed.record.id, left))
        steps |= more
    return replace(claimed, steps=steps, steps_left="")
