"""The options of a relay, with the names that they have on the command line and in Django's command."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from relier.errors import ConfigurationError
from relier.outbox.push import DEFAULT_TABLE
from relier.outbox.table.names import table_parts

LONGEST_S = 315_360_000.0  # ten years: longer waits overflow a clock or a column somewhere
LARGEST_BATCH = 10_000  # PostgreSQL takes 65,535 values in a statement, SQLite 32,766


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """The options of a relay. Times are in seconds."""

    batch_size: int = 100
    idle_time: float = 1.0
    publish_concurrency: int = 1
    send_timeout: float = 10.0
    shutdown_timeout: float = 30.0
    broker_outage_cooldown: float = 30.0
    max_retries: int = 5
    backoff_time: float = 120.0
    max_backoff: float = 3600.0
    stale_timeout_seconds: float = 300.0
    liveness_file: str | None = None
    table: str = DEFAULT_TABLE
    dead_retention: float = 0.0
    queue_snapshot_refresh_seconds: float = 10.0
    ordered: bool = False
    no_wake: bool = False

    def __post_init__(self) -> None:
        self._check_times()
        for what in ("batch_size", "publish_concurrency"):
            if getattr(self, what) < 1:
                raise ConfigurationError(f"{what} must be at least 1, not {getattr(self, what)}")
        if self.batch_size > LARGEST_BATCH:
            raise ConfigurationError(
                f"batch_size must be at most {LARGEST_BATCH}, not {self.batch_size}: one statement deletes the rows "
                f"of a batch, and databases limit the number of values in a statement; start more relays instead"
            )
        for what in (
            "shutdown_timeout",
            "broker_outage_cooldown",
            "max_retries",
            "backoff_time",
            "max_backoff",
            "dead_retention",
        ):
            if getattr(self, what) < 0:
                raise ConfigurationError(f"{what} must not be negative, but is {getattr(self, what)}")
        table_parts(self.table)
        if self.stale_timeout_seconds <= self.send_timeout:
            raise ConfigurationError(
                f"stale_timeout_seconds ({self.stale_timeout_seconds:g}) must be longer than send_timeout "
                f"({self.send_timeout:g}), or another relay would claim a row while this one sends it"
            )

    def _check_times(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigurationError(f"{field.name} must be a number of seconds, not {value}")
            if field.type == "float" and value > LONGEST_S:
                raise ConfigurationError(
                    f"{field.name} must be at most ten years, {LONGEST_S:.0f} seconds, not {value}"
                )
        for what in ("idle_time", "send_timeout", "stale_timeout_seconds", "queue_snapshot_refresh_seconds"):
            if getattr(self, what) <= 0:
                raise ConfigurationError(f"{what} must be more than 0 seconds, not {getattr(self, what)}")

    def backoff(self, retries: int) -> float:
        """Return how long a row waits after it has failed `retries` times before (s)."""
        return float(min(self.max_backoff, self.backoff_time * 2 ** min(retries, 60)))


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the command that runs relays, for click and for Django's argparse."""

    name: str
    help: str
    kind: type = str  # bool: a flag
    default: Any = None
    metavar: str | None = None
    many: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"


def relay_options() -> list[Option]:
    """Return the options of the relays, then those of their process."""
    kinds: dict[str, type] = {"int": int, "float": float, "bool": bool}
    own = [
        Option(one.name, OPTION_HELP[one.name], kinds.get(str(one.type), str), one.default)
        for one in fields(RelayOptions)
        if one.name in OPTION_HELP
    ]
    return [*own, *PROCESS_OPTIONS]


LEVELS = ("debug", "info", "warning", "error")

PROCESS_OPTIONS = (
    Option("table", "Outbox table; repeat for several.", default=(DEFAULT_TABLE,), metavar="NAME", many=True),
    Option("schema", "Schema of the tables; repeat for several.", default=(), metavar="NAME", many=True),
    Option("celery_app", "Also send rows that hold Celery messages, through this app's broker.", metavar="APP"),
    Option("no_ledger", "With --celery-app: send to its broker only. Rows for the ledger stay.", bool, default=False),
    Option("listen", "Be woken by PostgreSQL's NOTIFY; for outboxes with notify=True.", bool, default=False),
    Option("metrics_port", "Serve /livez, /readyz, /startupz and /metrics on this port.", int, metavar="PORT"),
    Option("metrics_host", "Address of the port; 0.0.0.0 for every network.", metavar="ADDRESS"),
)

LONGEST_AGE = 9  # digits: enough for any age, and within the range of a database
UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def age_of(text: str) -> int:
    """Parse an age such as 15m or 7d. Return ms."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or len(number) > LONGEST_AGE:
        raise ConfigurationError(f"an age must be a number and a unit, such as 90s, 15m, 6h or 7d, not {text[:60]!r}")
    return int(number) * UNITS[unit]


OPTION_HELP = {
    "batch_size": "Rows per claim.",
    "idle_time": "Longest time between polls of an empty table (s); a fifth of it if commits cannot wake the relay.",
    "publish_concurrency": "Number of publishing threads.",
    "send_timeout": "Longest time for one publish (s); after it, the target counts as unreachable.",
    "shutdown_timeout": "SIGTERM ends the process within this time plus one second, whatever hangs (s).",
    "broker_outage_cooldown": "Pause after a target was unreachable twice in a row (s).",
    "max_retries": "Retries of a row that fails on its own; then the row is dead.",
    "backoff_time": "First wait of such a row (s); it doubles each time.",
    "max_backoff": "Longest such wait (s).",
    "stale_timeout_seconds": "With --no-ledger: rows of a dead relay are free after this time (s).",
    "liveness_file": "File to touch in every pass, even an idle one, but not while the database refuses the relay.",
    "dead_retention": "Remove dead rows this long after they died (s); 2592000 is 30 days. 0 keeps them.",
    "queue_snapshot_refresh_seconds": "Interval between counts of the table, for the metrics (s).",
    "ordered": "Send rows with the same order key in order.",
    "no_wake": "Only poll: for tables whose writers cannot reach the store, and so cannot wake the relay.",
}
