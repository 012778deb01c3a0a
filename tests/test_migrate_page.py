"""The page for users of the public relier 0.1: each name of that package is there, and each of ours exists."""

from __future__ import annotations

import re

import click
import pytest

import relier
from relier import errors
from relier.cli.main import rl
from relier.ledger.keys import SCHEMA
from relier.options import GivenTaskOptions
from relier.settings import DEFAULTS
from tests.support import ROOT

PAGE = (ROOT / "docs" / "how-to" / "migrate-from-relier-0.1.md").read_text()
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()


def words(text: str) -> list[str]:
    return text.split()


# What the package of 0.1.7 defines and its documents name.
THEIR_SETTINGS = words(
    """
    ENV SECRET_KEY LOG_LEVEL REDIS_URL REDIS_MAX_CONNECTIONS REDIS_SOCKET_TIMEOUT REDIS_CONNECT_TIMEOUT
    REDIS_HEALTH_CHECK_INTERVAL REDIS_PASSWORD REDIS_USE_SENTINEL REDIS_SENTINEL_NODES REDIS_SENTINEL_MASTER_NAME
    REDIS_SENTINEL_PASSWORD CELERY_WORKER_COUNT CELERY_WORKER_CONCURRENCY HEARTBEAT_TTL MAX_RESURRECTIONS
    RESURRECTION_CHECK_INTERVAL RESURRECTION_REQUEUE_DELAY RESURRECTION_BATCH_SIZE RESURRECTION_MAX_QUEUE_DEPTH
    RESURRECTION_CLAIM_GRACE_PERIOD IDEMPOTENCY_DEFAULT_TTL IDEMPOTENCY_INFLIGHT_TTL CHECKPOINT_MAX_INLINE_BYTES
    CHECKPOINT_BACKEND CHECKPOINT_DIR SOFT_TIMEOUT HARD_TIMEOUT GRACEFUL_SHUTDOWN_TIMEOUT ADMISSION_LIMIT
    ADMISSION_WINDOW OTEL_ENABLED OTEL_EXPORTER_OTLP_ENDPOINT
    """
)
THEIR_COMMANDS = [
    *("rl run-resurrector", "rl doctor", "rl man", "rl bench"),
    *(f"rl cluster {name}" for name in ("up", "down", "status", "scale", "logs")),
    *(f"rl tasks {name}" for name in ("list", "inflight", "top", "inspect", "retry", "cancel", "logs")),
    *(f"rl worker {name}" for name in ("status", "drain", "restart", "reset")),
    *(f"rl dlq {name}" for name in ("list", "inspect", "release", "retry-all", "purge")),
    *(f"rl slo {name}" for name in ("status", "report")),
    *(f"rl chaos {name}" for name in ("worker-kill", "network-partition", "load-spike", "task-corrupt", "slow-task")),
    *(f"rl config {name}" for name in ("show", "validate", "set")),
    *("rl admission status", "rl admin config", "rl admin reset-admission", "rl admin purge-locks"),
]
THEIR_KEYS = words(
    """
    rl:hb: rl:phoenix:{ rl:phoenix:expiry_index rl:resurrections: rl:lock:resurrect: rl:lease: rl:fence: rl:workers
    rl:presence: rl:inflight: rl:idem: rl:dlq rl:monitoring rl:m:global: rl:m:w: rl:slo: rl:admission:
    rl:task_durations re-queue
    """
)
THEIR_NAMES = words(
    """
    rl_task RelierTask TaskReceipt TaskContext task_context Settings get_settings PUBLIC_QUEUES RelierError
    ConfigurationError RedisConnectionError WorkerInitializationError AdmissionRejectedError
    IdempotencyInFlightError MaxResurrectionsExceededError PayloadIntegrityError SchemaMigrationError
    ShadowRegistryError CheckpointTooLargeError idempotency_lock SchemaRegistry DeadLetterQueue AdmissionController
    CheckpointStore BlobBackend FilesystemBackend SLOMetrics RedisManager PhoenixRegistry GracefulShutdownHandler
    TimeoutEnforcer TaskEnvelope IdempotencyManager get_relier_redis apush push delay apply_async set_partial
    partial_result metadata full_name started_at queue idempotent idempotency_ttl soft_timeout hard_timeout
    on_soft_timeout name already_executed cached_result set_result register_migration CURRENT_VERSION
    """
)
THEIR_METRICS = words(
    """
    rl_tasks_total rl_admission_total rl_timeouts_total rl_shutdowns_total rl_resurrections_total
    rl_dlq_quarantined_total rl_idempotency_hits_total rl_circuit_trips_total rl_task_duration_ms rl_overhead_ms
    rl_resurrection_time_s rl_shutdown_duration_s rl_inflight_tasks
    """
)
THEIR_PROBES = ["LLEN re-queue", "ZCARD rl:phoenix:expiry_index", "ZRANGE rl:phoenix:expiry_index", "HLEN rl:dlq"]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    part = PAGE[PAGE.index(f"## {heading}\n") :].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]


def code(cells: list[str]) -> list[str]:
    return re.findall(r"`([^`]+)`", " ".join(cells))


def test_every_setting_of_theirs_has_a_row() -> None:
    assert [row[0] for row in rows("Settings")] == [f"`RELIER_{name}`" for name in THEIR_SETTINGS]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Commands", THEIR_COMMANDS),
        ("Keys", THEIR_KEYS),
        ("Metrics", THEIR_METRICS),
        ("Probes", THEIR_PROBES),
    ],
)
def test_every_name_of_theirs_stands_in_the_first_columns(heading: str, names: list[str]) -> None:
    theirs = " ".join(f"{row[0]} {row[1] if heading == 'Probes' else ''}" for row in rows(heading))
    assert [name for name in names if name not in theirs] == []


def test_every_class_function_and_option_of_theirs_is_on_the_page() -> None:
    assert [name for name in THEIR_NAMES if not re.search(rf"`[^`]*\b{name}\b", PAGE)] == []


def test_every_setting_of_ours_exists() -> None:
    ours = {name for row in rows("Settings") for name in re.findall(r"RELIER_(\w+)", " ".join(row[1:]))}
    ours |= {name for row in rows("Code") for name in re.findall(r"RELIER_(\w+)", row[1])}
    assert {name for name in ours if name.lower() not in DEFAULTS} == set()


def test_every_command_of_ours_exists() -> None:
    cells = [row[1] for row in rows("Commands")] + [row[2] for row in rows("Probes")] + [row[1] for row in rows("Code")]
    said = [each for each in code(cells) if each.startswith("rl ")]
    assert len(said) > 30
    for each in said:
        assert resolves(each.split()[1:]), each


def resolves(words: list[str]) -> bool:
    """Whether `rl` has a command of these words, with the options among them."""
    command: click.Command = rl
    ctx = click.Context(rl, info_name="rl")
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        below = command.get_command(ctx, words[0])
        if below is None:
            return False
        command, ctx, words = below, click.Context(below, ctx, words[0]), words[1:]
    known = {option for param in command.get_params(ctx) for option in param.opts}
    return all(word in known for word in words if word.startswith("--"))


def test_every_key_of_ours_exists() -> None:
    spelled = {f"{key.spelled}<{key.per}>" if key.per else key.spelled for key in SCHEMA} | {"n:<minute>", "n:<hour>"}
    ours = set(code([row[1] for row in rows("Keys")]))
    assert ours - spelled == set()
    probed = set(re.findall(r"'rl:\{default\}:([a-z]+:?)", " ".join(row[2] for row in rows("Probes"))))
    assert probed - {key.spelled for key in SCHEMA} == set()


def test_every_metric_of_ours_exists() -> None:
    cells = [row[1] for row in rows("Metrics")] + [row[3] for row in rows("Probes") if len(row) > 3]
    ours = [name for name in code(cells) if name.startswith("rl_")]
    assert [name for name in ours if f"| `{name}` |" not in METRICS] == []


def test_every_error_option_and_class_of_ours_exists() -> None:
    said = PAGE[PAGE.index("## Errors") : PAGE.index("`ShadowRegistryError`")]
    assert [name for name in re.findall(r"`(\w+Error)`", said) if not hasattr(errors, name)] == []
    options = set(GivenTaskOptions.__annotations__)
    same = {"idempotent", "idempotency_ttl", "soft_timeout", "hard_timeout", "on_soft_timeout", "name", "queue"}
    assert same | {"schema_version"} <= options
    for name in ("RlTask", "TaskReceipt", "SyncTaskReceipt", "INJECTED", "Admit", "Client", "idempotency_lock"):
        assert hasattr(relier, name)
        assert f"`{name}" in PAGE or f" {name}`" in PAGE
