"""The model's outcomes: how tasks ended, and how long they waited and ran. See lua/lib/outcomes.lua."""

from __future__ import annotations

from typing import Any

from proof.model.state import Namespace, Rec

OUTCOME_FIELDS = 6  # a low number, so that simulated runs fill their hashes


def bucket(ms: int) -> int:
    if ms <= 0:
        return 0
    digits = str(ms)
    return 37 if len(digits) > 9 else 4 * (len(digits) - 1) + (1, 2, 3, 3, 4, 4, 4, 4, 4)[int(digits[0]) - 1]


class Counting(Namespace):
    """Collect the outcomes of a call, and count them when it ends."""

    def count_outcome(self, rec: Rec, what: str, since: int | None) -> None:
        time = "-" if since is None else str(bucket(self.time_us // 1000 - since))
        self.counted.append((f"{what} {time}", f"{rec.queue}\n{rec.name}"))

    def count_end(self, rec: Rec, state: str, reason: str = "") -> None:
        """Count an end. Call this before the record changes."""
        what = "expired" if reason == "expired" else state
        self.count_outcome(rec, what, rec.moved if rec.state == "running" else None)

    def count_wait(self, rec: Rec) -> None:
        self.count_outcome(rec, "wait", rec.moved or rec.at // 1000)

    def write_outcomes(self) -> None:
        if not self.counted:
            return
        counted, self.counted = self.counted, []
        ms = self.time_us // 1000
        for period in (f"m{ms // 60_000}", f"h{ms // 3_600_000}"):
            sums: dict[tuple[str, str], int] = {}
            for row in counted:
                sums[row] = sums.get(row, 0) + 1
            for (head, place), n in sums.items():
                self.add_outcome(period, head, place, n)

    def add_outcome(self, period: str, head: str, place: str, n: int) -> None:
        found = self.outcomes.setdefault(period, {})
        field = f"{head}\n{place}"
        if field not in found and len(found) >= OUTCOME_FIELDS:
            field = f"{head}\n\n"
        found[field] = found.get(field, 0) + n

    def _outcomes(self, args: list[bytes]) -> Any:
        unit, back, cursor = args[0].decode(), int(args[1]), args[2].decode()
        ms = self.time_us // 1000
        last = ms // (60_000 if unit == "m" else 3_600_000)
        found = (
            (period, self.outcomes.get(f"{unit}{period}"))
            for period in range(max(int(cursor or 0), last - back), last + 1)
        )
        rows = [
            [period, [word for field, n in counts.items() for word in (field.encode(), str(n).encode())]]
            for period, counts in found
            if counts
        ]
        return [ms, b"", *rows]
