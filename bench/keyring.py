"""The cost of signing and encryption, in µs of CPU per task: the minimum of many rounds, because the machine may be
shared."""

from __future__ import annotations

import base64
import os
import timeit
from collections.abc import Callable
from typing import Any

from relier.codec.keyring import NO_KEYS, Keyring
from relier.envelope import open_envelope, seal
from relier.ledger.records import new_task_id
from relier.settings import Settings

ROUNDS = 60
NAME = "shop.tasks.billing.charge_customer"
BODIES = {"a call of two arguments": b'[["cus_1",5000],{}]', "a call of 1 kB": b'[["%b"],{}]' % (b"x" * 1000)}


def a_key() -> str:
    return f"2026-11:{base64.b64encode(os.urandom(32)).decode()}"


KEYRINGS = {
    "no keys": NO_KEYS,
    "signing": Keyring.of(Settings(signing_keys=a_key())),
    "encryption": Keyring.of(Settings(encryption_keys=a_key())),
    "both": Keyring.of(Settings(signing_keys=a_key(), encryption_keys=a_key())),
}


def works(body: bytes, keys: Keyring) -> dict[str, Callable[[], Any]]:
    """Return the operations for one task, by the process that does them."""
    task_id = new_task_id()

    def push() -> bytes:
        return seal(body, schema_version=1, pushed_ms=1794720833000, task_id=task_id, name=NAME, keyring=keys)

    payload, result = push(), keys.wrap(body, task_id, "result")
    return {
        "push": push,
        "open": lambda: open_envelope(payload, task_id=task_id, name=NAME, keyring=keys),
        "result": lambda: keys.wrap(body, task_id, "result"),
        "read": lambda: keys.unwrap(result, task_id, "result"),
    }


def main() -> None:
    for what, body in BODIES.items():
        every = {(name, work): call for name, keys in KEYRINGS.items() for work, call in works(body, keys).items()}
        least = dict.fromkeys(every, float("inf"))
        for _ in range(ROUNDS):  # in turn, so that a busy moment hits all alike
            for each, call in every.items():
                least[each] = min(least[each], timeit.timeit(call, number=1000) * 1000)
        print(f"{what} ({len(body)} bytes), µs")
        for name, keys in KEYRINGS.items():
            times = "  ".join(f"{work} {least[name, work]:6.2f}" for work in works(body, keys))
            payload, result = works(body, keys)["push"](), works(body, keys)["result"]()
            print(f"  {name:12} {times}  payload {len(payload):,} bytes, result {len(result):,}")


if __name__ == "__main__":
    main()
