"""Read the results of a batch's members, for tasks that take a previous result and for receipts.

The store keeps one copy, with the batch. A stored value is `<task id>\\n<result>`, or `<task id>` if the task returned
None. For an inner batch, it is `@<batch>`: the value is the list of that batch's results. The task id is stored because
an encrypted result can be read only with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from relier.codec.keyring import Keyring
from relier.envelope import flow_of
from relier.errors import BatchNotFoundError, RelierError
from relier.ledger.ledger import Ledger
from relier.ledger.records import Claimed
from relier.store.call import Call

Run = Callable[[Call[Any]], Awaitable[Any]]
Value: TypeAlias = "bytes | list[Value] | None"


def takes_input(claimed: Claimed) -> bool:
    """Return whether the task takes a previous result as its first argument."""
    return len(flow_of(claimed.payload).split(" ")) > 1 and not flow_of(claimed.payload).endswith(" -")


async def with_inputs(
    tasks: Sequence[Claimed], run: Run, ledger: Ledger, keyring: Keyring
) -> list[Claimed | RelierError]:
    """Return each task with its first argument or, if that cannot be read, the error."""
    return await asyncio.gather(*(_with_input(each, run, ledger, keyring) for each in tasks))


async def _with_input(claimed: Claimed, run: Run, ledger: Ledger, keyring: Keyring) -> Claimed | RelierError:
    _, batch, *field = flow_of(claimed.payload).split(" ")
    try:
        if field:
            value = await _one(batch, field[0], run, ledger, keyring)
        else:
            value = await read_results(batch, run, ledger, keyring)
    except RelierError as error:
        return error
    return replace(claimed, given=as_json(value))


async def _one(batch: str, field: str, run: Run, ledger: Ledger, keyring: Keyring) -> Value:
    found, _ = await run(ledger.results(batch, field=field))
    if field not in found:
        raise BatchNotFoundError(
            f"the first argument of the task is gone: batch {batch} no longer holds the previous result; somebody "
            f"removed it, or the store was emptied; push the workflow again"
        )
    return _opened(found[field], keyring)


async def read_results(batch: str, run: Run, ledger: Ledger, keyring: Keyring) -> list[Value]:
    """Return the results of a batch's members, in order. The result of an inner batch is a list."""
    found: dict[str, bytes] = {}
    cursor = "0"
    while cursor:
        page, cursor = await run(ledger.results(batch, cursor))
        found |= page
    values: list[Value] = []
    for place in sorted((name for name in found if not name.startswith(">")), key=int):
        raw = found[place]
        inner = raw[1:].decode() if raw.startswith(b"@") else ""
        values.append(await read_results(inner, run, ledger, keyring) if inner else _opened(raw, keyring))
    return values


def _opened(raw: bytes, keyring: Keyring) -> bytes | None:
    task_id, found, value = raw.partition(b"\n")
    return keyring.unwrap(value, task_id.decode(), "result") if found else None


def as_json(value: Value) -> bytes:
    """Return a value as JSON, the format of a task's arguments."""
    if value is None:
        return b"null"
    return value if isinstance(value, bytes) else b"[" + b",".join(map(as_json, value)) + b"]"


def with_first(body: bytes, given: bytes) -> bytes:
    """Return the body of a call, `[[arguments…],{…}]`, with one more argument in front."""
    rest = body.removeprefix(b"[[")
    return b"[[" + given + (b"" if rest.startswith(b"]") else b",") + rest
