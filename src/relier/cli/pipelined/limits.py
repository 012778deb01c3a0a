"""Read the limits of running tasks in three round trips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relier.cli.pipelined.steps import Reading, cut, raw, script
from relier.ledger import keys
from relier.ledger.ledger import Ledger
from relier.ledger.limit_overview import LimitOverview
from relier.ledger.limit_records import LimitedKey, LimitNumbers
from relier.ledger.replies import pairs, text

MOST_KEYS = 10_000  # about so many are looked at; a command that reads them all at once takes 2 to 3 ms
MOST_SET = 5_000
MOST_LANES = 500
COUNTED_AT_ONCE = 1_000
NUMBERS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class LimitsFound:
    """`overview`: the keys that were chosen. `total`: how many were looked at. `complete`: whether these are all."""

    overview: LimitOverview
    total: int
    complete: bool


def limits_reading(ledger: Ledger, most: int, part: str = "") -> Reading[LimitsFound]:
    """Read the keys with the most waiting tasks, and what operators set. `part`: keys that contain it come first."""
    spelled = keys.spell
    time, limited, chosen, lanes = yield [
        raw("TIME"),
        raw("HSCAN", spelled(ledger.prefix, "limited"), 0, "COUNT", MOST_KEYS),
        raw("HSCAN", spelled(ledger.prefix, "limits"), 0, "COUNT", MOST_SET),
        raw("HSCAN", spelled(ledger.prefix, "lanes"), 0, "COUNT", MOST_LANES),
    ]
    live = {key: int(n) for key, n in zip(limited[1][::2], limited[1][1::2], strict=True)}
    counted = yield [script("limit_counts", *some) for some in cut(live, COUNTED_AT_ONCE)]
    running = dict(zip(live, (n for answer in counted for n in answer), strict=True))
    wanted = part.encode()
    first = sorted(live, key=lambda key: (wanted not in key, running[key] - live[key], key))[:most]
    heads = _heads(dict(zip(lanes[1][::2], lanes[1][1::2], strict=True)))
    asked = [(key, heads.get(key, b"")) for key in first]
    parts = cut(asked, NUMBERS_AT_ONCE)
    answers = yield [script("limit_numbers", *(word for pair in some for word in pair)) for some in parts]
    flat = [word for answer in answers for word in answer]
    found = {
        text(key): LimitedKey(text(key), live[key], running[key], _numbers(flat[2 * n]), text(flat[2 * n + 1]))
        for n, key in enumerate(first)
    }
    by_operators = {name: (_known(said), int(said.split()[3])) for name, said in pairs(chosen[1])}
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    return LimitsFound(LimitOverview(now_ms, found, by_operators), len(live), limited[0] == b"0")


def _heads(lanes: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return limit key -> the task that leads a lane with this key, for lanes that have such a task."""
    return {
        key: state[1:]
        for lane, state in lanes.items()
        if state.startswith(b"+")
        for key in lane.partition(b" ")[0].split(b",")
    }


def _numbers(said: bytes) -> LimitNumbers | None:
    return _known(said) if said else None


def _known(said: bytes) -> LimitNumbers:
    return LimitNumbers(*(int(number) for number in said.split()[:3]))
