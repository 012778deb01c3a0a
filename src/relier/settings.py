"""All settings, validated once and handed down. Each field is the environment variable RELIER_<NAME>."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from relier.errors import ConfigurationError

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MOST_AT_ONCE = 100_000
MOST_RESURRECTIONS = 99
OUTBOX_DATABASE = "RELIER_OUTBOX_DATABASE_URL"  # no field: an option of `rl outbox`, which alone knows databases by URL


class Settings(BaseSettings):
    """One frozen object. Build it with `get_settings()` (environment) or `Settings(field=…)` (tests, code).

    The text below a field is its line in docs/reference/settings.md (`python docs/generate.py`).
    """

    model_config = SettingsConfigDict(env_prefix="RELIER_", frozen=True, extra="forbid", hide_input_in_errors=True)

    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    """Whose ledger: tasks, workers and counters of one namespace see nothing of another's. It is one hash slot of a
    cluster."""
    key_prefix: Annotated[str, Field(pattern=r"^[^{}\s]*$")] = "rl:"
    """What every key begins with, before the namespace."""

    redis_url: Annotated[str, Field(repr=False)] = "embedded://"
    """The store. `embedded://` starts a Valkey of the project's own in `.relier/`, in the nearest folder, upwards from
    where the process starts, that has `.relier`, `pyproject.toml`, `setup.py`, `setup.cfg`, `manage.py` or `.git`; in
    none, there. Two apps in one repository share it: give each its own `RELIER_NAMESPACE`. `embedded:///a/folder` names
    another. Others: `redis://`, `rediss://`, `valkey://`, `valkeys://`, `unix://`, `sentinel://`, `redis+cluster://`."""
    redis_use_sentinel: bool = False
    """Find the master through `redis_sentinel_nodes` instead of `redis_url`."""
    redis_sentinel_nodes: Annotated[str, Field(repr=False)] = ""
    """The Sentinels, as `host:port,host:port`."""
    redis_sentinel_master_name: str = "relier-master"
    """The name the Sentinels know the master by."""
    redis_pool_size: Annotated[int, Field(ge=1)] = 20
    """Connections at once, per event loop or per process of blocking callers."""
    redis_pool_idle: Annotated[int, Field(ge=0)] = 1
    """Connections kept open while there is nothing to do."""
    redis_connect_timeout: Seconds = 1.0
    """How long a connection may take to open (s)."""
    redis_read_timeout: Seconds = 2.0
    """How long one answer may take (s)."""
    redis_deadline: Seconds = 5.0
    """How long one call may take in all, attempts and pauses included (s). Then it raises RedisConnectionError."""
    redis_retries: Annotated[int, Field(ge=0)] = 5
    """How often a call is sent again after its answer was lost, within its deadline. Every move is safe to repeat. A
    refused connection or a "not now" from the server uses up no retry: those are tried until the deadline."""
    redis_breaker_failures: Annotated[int, Field(ge=1)] = 5
    """After so many failed attempts in a row, calls are refused at once instead of waiting."""
    redis_breaker_cooldown: Seconds = 1.0
    """While calls are refused, how often one of them may try (s)."""
    redis_replicas: Annotated[int, Field(ge=0)] | None = None
    """How many replicas could be promoted: `replicated` waits for all of them. With Sentinel it is found out."""
    redis_durability_timeout: Seconds = 2.0
    """How long to wait for the confirmation of `fsync` and `replicated` (s). Then it raises PushIndeterminate."""
    redis_allow_eviction: bool = False
    """Work on a server that may delete keys to free memory. It may then delete tasks."""

    durability: Literal["memory", "fsync", "replicated"] = "memory"
    """What must be true of a write before a push counts as accepted: the master has it in memory, it is on the master's
    disk (`fsync`), or every replica that could be promoted has it (`replicated`)."""
    max_payload_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    """The largest payload, result or checkpoint. A larger one is refused."""
    result_ttl: Seconds = 3600.0
    """How long the record of a task that is done or cancelled is kept (s), as set where it is pushed."""
    dead_ttl: Seconds = 30 * 86_400.0
    """How long a dead letter is kept (s), as set where the task is pushed."""
    heartbeat_ttl: Seconds = 5.0
    """The lease (s): a worker that gave no sign of life for so long is declared lost. It beats at a quarter of it."""
    admission_limit: Annotated[int, Field(ge=0)] = 5000
    """At most so many pushes per `admission_window` in all of the namespace; 0: no limit. A larger bulk is refused."""
    admission_window: Seconds = 10.0
    """The window of `admission_limit` (s)."""
    admission_max_depth: Annotated[int, Field(ge=0)] = 0
    """No push to a queue in which so many tasks wait; 0: no limit."""
    admission_max_bytes: Annotated[int, Field(ge=0)] = 0
    """No push while live tasks hold so many bytes of payload; 0: no limit. Set it below the store's memory limit."""
    admission_fail_open: bool = False
    """Accept a push where the state of a limit cannot be read."""
    checkpoint_max_inline_bytes: Annotated[int, Field(ge=0)] = 256 * 1024
    """Checkpoints up to this size, compressed, are kept beside the record."""
    checkpoint_dir: str = ""
    """Where larger checkpoints go: a folder all workers share, or an fsspec URL such as `s3://bucket/folder`."""
    idempotency_inflight_ttl: Seconds = 120.0
    """How long the mark of an `idempotency_lock` holds without being renewed (s)."""
    resurrection_batch_size: Annotated[int, Field(ge=1)] = 1000
    """At most so many tasks are returned in one pass of a sweep."""
    resurrection_max_queue_depth: Annotated[int, Field(ge=1)] = 10_000
    """While so many returned tasks wait in a queue, no more are returned to it."""
    resurrection_requeue_delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """The pause between two passes while there is more to return (s)."""
    resurrection_check_interval: Seconds = 0.5
    """How often every worker, and `rl resurrector`, sweeps (s)."""
    max_resurrections: Annotated[int, Field(ge=0, le=MOST_RESURRECTIONS)] = 5
    """How many deaths of its own process a task survives before it becomes a dead letter, as set where it is pushed. A
    task's own `max_resurrections` overrides it."""
    graceful_shutdown_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    """How long a worker that was told to leave lets its tasks finish (s). Then it hands them back."""
    concurrency: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 100
    """Tasks at once in one worker process."""

    signing_keys: SecretStr = SecretStr("")
    """Sign what is pushed, and run nothing else: `id:base64,id2:base64`, the key in use first; each ≥ 16 bytes."""
    encryption_keys: SecretStr = SecretStr("")
    """Encrypt payloads, results (of locks too), checkpoints and steps: `id:base64,id2:base64`, the key in use first;
    each 16, 24 or 32 bytes. Needs the extra `encryption`."""
    redact: Annotated[str, Field(pattern=r"^([\w.]+:[\w.]+)?$")] = ""
    """Who decides what people may see of payloads, results and failures: `package.module:function`, called with the
    task's name and the value, returns what may be shown."""


def environment(settings: Settings) -> dict[str, str]:
    """These settings as environment variables, for a process of ours that shall have the same."""
    given = settings.model_dump(exclude_none=True)
    return {
        f"RELIER_{name.upper()}": value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in given.items()
    }


@cache
def get_settings() -> Settings:
    """The settings of the environment, read once."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(
            f"RELIER_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise ConfigurationError(f"settings do not fit: {wrong}; correct the environment and start again") from error
