"""All settings, validated once and handed down. Each field is the environment variable RELIER_<NAME>."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from relier.errors import ConfigurationError

Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseSettings):
    """One frozen object. Build it with `get_settings()` (environment) or `Settings(field=…)` (tests, code)."""

    model_config = SettingsConfigDict(env_prefix="RELIER_", frozen=True, extra="forbid", hide_input_in_errors=True)

    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    key_prefix: Annotated[str, Field(pattern=r"^[^{}\s]*$")] = "rl:"

    redis_url: Annotated[str, Field(repr=False)] = "embedded://"
    redis_use_sentinel: bool = False
    redis_sentinel_nodes: Annotated[str, Field(repr=False)] = ""
    redis_sentinel_master_name: str = "relier-master"
    redis_pool_size: Annotated[int, Field(ge=1)] = 20
    redis_pool_idle: Annotated[int, Field(ge=0)] = 1
    redis_connect_timeout: Seconds = 1.0
    redis_read_timeout: Seconds = 2.0
    redis_deadline: Seconds = 5.0
    redis_retries: Annotated[int, Field(ge=0)] = 5
    redis_breaker_failures: Annotated[int, Field(ge=1)] = 5
    redis_breaker_cooldown: Seconds = 1.0
    redis_replicas: Annotated[int, Field(ge=0)] | None = None
    redis_durability_timeout: Seconds = 2.0
    redis_allow_eviction: bool = False

    durability: Literal["memory", "fsync", "replicated"] = "memory"
    max_payload_bytes: Annotated[int, Field(ge=1)] = 1024 * 1024
    result_ttl: Seconds = 3600.0
    dead_ttl: Seconds = 30 * 86_400.0
    heartbeat_ttl: Seconds = 5.0
    admission_limit: Annotated[int, Field(ge=0)] = 5000
    admission_window: Seconds = 10.0
    admission_max_depth: Annotated[int, Field(ge=0)] = 0
    admission_max_bytes: Annotated[int, Field(ge=0)] = 0
    admission_fail_open: bool = False
    idempotency_inflight_ttl: Seconds = 120.0
    resurrection_batch_size: Annotated[int, Field(ge=1)] = 1000
    resurrection_max_queue_depth: Annotated[int, Field(ge=1)] = 10_000
    resurrection_requeue_delay: Annotated[float, Field(ge=0)] = 0.05
    resurrection_check_interval: Seconds = 0.5
    graceful_shutdown_timeout: Annotated[float, Field(ge=0)] = 30.0
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 100

    signing_keys: SecretStr = SecretStr("")
    """Sign what is pushed, and run nothing else: `id:base64,id2:base64`, the key in use first; each ≥ 16 bytes."""
    encryption_keys: SecretStr = SecretStr("")
    """Encrypt payloads, results, checkpoints and steps: `id:base64,id2:base64`, the key in use first; each 16, 24 or 32
    bytes. Needs `pip install relier[encryption]`."""
    redact: Annotated[str, Field(pattern=r"^([\w.]+:[\w.]+)?$")] = ""
    """Who decides what people may see of payloads, results and failures: `package.module:function`, called with the
    task's name and the value, returns what may be shown."""


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
