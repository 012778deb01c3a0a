"""All settings, validated once and passed down. Each field is the environment variable RELIER_<NAME>.

They are a frozen dataclass, checked by msgspec. pydantic-settings did the same, but importing it took half the start of
a worker and a third of its memory (docs/decisions/0016-settings-are-a-dataclass.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_type_hints

from msgspec import Meta

from relier.errors import ConfigurationError
from relier.settings.shards import MOST_SHARDS, ROOT, split_urls, trouble_with_shards
from relier.settings.values import NO_SECRET, Secret, WrongValueError, checked

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]
EventMode = Literal["always", "watched", "never"]
Seconds = Annotated[float, Meta(gt=0)]
MOST_AT_ONCE = 100_000
MOST_RESURRECTIONS = 99
IMPORT_PATH = r"^([\w.]+:[\w.]+)?$"  # package.module:name
OUTBOX_DATABASE = "RELIER_OUTBOX_DATABASE_URL"  # not a field: an option of `rl outbox`, the only user of database URLs
BACKUP_OPTIONS = ("BACKUP_DIR", "BACKUP_INTERVAL_SECONDS", "BACKUP_RETENTION", "BACKUP_S3_BUCKET")  # of `rl backup`


class ProjectSettings(NamedTuple):
    """Where a framework's project keeps its settings: how people name that place, and how to read it."""

    place: str
    read: Callable[[], Mapping[str, Any]]


_project: ProjectSettings | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One frozen object. Build it with `get_settings()` (environment) or `Settings(field=…)` (tests, code).

    The environment wins over the settings of a framework's project (`use_project_settings`).

    The text below a field is its line in docs/reference/settings.md (`python docs/generate.py`).
    """

    namespace: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    """Name of the ledger. Tasks, workers and counters of different namespaces are separate. In a cluster, a namespace
    is one hash slot."""
    key_prefix: Annotated[str, Meta(pattern=r"^[^{}\s]*$")] = "rl:"
    """Prefix of every key, before the namespace."""
    shards: Annotated[int, Meta(ge=1, le=MOST_SHARDS)] = 1
    """Number of shards. Shard 2 of the namespace `shop` is the namespace `shop.2`, and each task lies in the shard
    to which its id belongs. Use the same value in all processes; to change it, see [Shards](../how-to/shards.md)."""

    redis_url: str = field(default="embedded://", repr=False)
    """URL of the store. `embedded://` starts a Valkey for the project and keeps its data in `.relier/`. That folder is
    in the nearest parent of the working directory that has `.relier`, `pyproject.toml`, `setup.py`, `setup.cfg`,
    `manage.py` or `.git`, or in the working directory itself. Two apps in one repository share it: give each its own
    `RELIER_NAMESPACE`. `embedded:///a/folder` uses another folder. Other schemes: `redis://`, `rediss://`,
    `valkey://`, `valkeys://`, `unix://`, `sentinel://`, `redis+cluster://`. With shards: one URL for all of them, or
    one for each, separated by spaces."""
    redis_use_sentinel: bool = False
    """Find the primary through `redis_sentinel_nodes` instead of `redis_url`."""
    redis_sentinel_nodes: str = field(default="", repr=False)
    """Addresses of the Sentinels: `host:port,host:port`."""
    redis_sentinel_master_name: str = "relier-master"
    """Name of the primary in Sentinel."""
    redis_pool_size: Annotated[int, Meta(ge=1)] = 20
    """Maximum number of connections, per event loop or per process of blocking callers."""
    redis_pool_idle: Annotated[int, Meta(ge=0)] = 1
    """Number of idle connections to keep open."""
    redis_connect_timeout: Seconds = 1.0
    """Time limit for opening a connection (s)."""
    redis_read_timeout: Seconds = 2.0
    """Time limit for one reply (s)."""
    redis_deadline: Seconds = 5.0
    """Time limit for one call, including retries and pauses (s). After it the call raises RedisConnectionError."""
    redis_retries: Annotated[int, Meta(ge=0)] = 5
    """How often to resend a call whose reply was lost, within its deadline. Every move is safe to repeat. Refused
    connections and "not now" replies do not count as retries: they are tried until the deadline."""
    redis_breaker_failures: Annotated[int, Meta(ge=1)] = 5
    """After this many failed attempts in a row, calls fail at once instead of waiting."""
    redis_breaker_cooldown: Seconds = 1.0
    """While calls fail at once, one call may try this often (s)."""
    redis_replicas: Annotated[int, Meta(ge=0)] | None = None
    """Number of replicas that could be promoted. `replicated` waits for all of them. Sentinel reports it."""
    redis_durability_timeout: Seconds = 2.0
    """Time limit for confirming `fsync` and `replicated` (s). After it a push raises PushIndeterminate."""
    redis_allow_eviction: bool = False
    """Accept a server that evicts keys when memory runs out. It may then delete tasks."""

    durability: Literal["memory", "fsync", "replicated"] = "memory"
    """When a push counts as accepted: once the primary has it in memory, once it is on the primary's disk (`fsync`), or
    once every replica that could be promoted has it (`replicated`)."""
    max_payload_bytes: Annotated[int, Meta(ge=1)] = 1024 * 1024
    """Maximum size of a payload, result or checkpoint. Larger ones are refused."""
    result_ttl: Seconds = 3600.0
    """How long the record of a done or cancelled task is kept (s). The pushing process decides."""
    dead_ttl: Seconds = 30 * 86_400.0
    """How long a dead letter is kept (s). The pushing process decides."""
    heartbeat_ttl: Seconds = 5.0
    """Length of a worker's lease (s): without a heartbeat for this long, a worker is declared lost. Workers send one
    four times per lease."""
    admission_limit: Annotated[int, Meta(ge=0)] = 5000
    """Maximum number of pushes per `admission_window` in the namespace; 0 means no limit. Larger bulks are refused."""
    admission_window: Seconds = 10.0
    """Window of `admission_limit` (s)."""
    admission_max_depth: Annotated[int, Meta(ge=0)] = 0
    """Refuse pushes to a queue with this many waiting tasks; 0 means no limit."""
    admission_max_bytes: Annotated[int, Meta(ge=0)] = 0
    """Refuse pushes while live tasks hold this many bytes of payload; 0 means no limit. Set it below the store's memory
    limit."""
    admission_fail_open: bool = False
    """Accept a push if the state of a limit cannot be read."""
    checkpoint_max_inline_bytes: Annotated[int, Meta(ge=0)] = 256 * 1024
    """Checkpoints up to this compressed size are stored next to the record."""
    checkpoint_dir: str = ""
    """Where larger checkpoints go: a folder shared by all workers, or an fsspec URL such as `s3://bucket/folder`."""
    idempotency_inflight_ttl: Seconds = 120.0
    """How long an `idempotency_lock` holds without renewal (s)."""
    resurrection_batch_size: Annotated[int, Meta(ge=1)] = 1000
    """Maximum number of tasks that one pass of a sweep returns to their queues."""
    resurrection_max_queue_depth: Annotated[int, Meta(ge=1)] = 10_000
    """While this many returned tasks wait in a queue, no more are returned to it."""
    resurrection_requeue_delay: Annotated[float, Meta(ge=0)] = 0.05
    """Pause between two passes while more tasks are to be returned (s)."""
    resurrection_check_interval: Seconds = 0.5
    """How often each worker, and `rl resurrector`, sweeps (s)."""
    max_resurrections: Annotated[int, Meta(ge=0, le=MOST_RESURRECTIONS)] = 5
    """How many deaths of its own process a task survives before it becomes a dead letter. The pushing process decides;
    a task's own `max_resurrections` overrides it."""
    graceful_shutdown_timeout: Annotated[float, Meta(ge=0)] = 30.0
    """How long running tasks may take to finish at shutdown (s). After it they return to their queues."""
    concurrency: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 100
    """Maximum number of concurrent tasks in one worker process."""
    events: EventMode = "watched"
    """When this process writes events, which `relier.events` and `rl events` read: `always`; `watched`, while somebody
    reads them; or `never`. Use the same value in all processes."""
    events_keep: Annotated[int, Meta(ge=100, le=10_000_000)] = 10_000
    """How many changes each topic of events keeps. A reader that falls further behind gets a `Missed` event."""
    slo: Literal["on", "off"] = "on"
    """Whether this process counts how tasks end and how long they wait and run, for `rl slo`. Set it alike in all
    processes."""
    slo_target: Annotated[float, Meta(gt=0, lt=1)] = 0.999
    """Target of objectives without their own: the share of tasks that must do well, such as 0.999."""
    slo_objectives: str = ""
    """Objectives as a JSON list, such as `[{"queue": "mail", "start_within": 30, "target": 0.99}]`. Empty: one
    objective, that the tasks of the namespace succeed."""
    log_level: LogLevel = "info"
    """Log threshold of `rl worker`, `rl dev`, `rl resurrector` and `rl outbox relay`: debug, info, warning or error.
    Ignored if the application configures logging itself."""
    log_format: LogFormat = "console"
    """`console` for people, or `json`: one object per line. Ignored if the application configures logging itself."""
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port on which each long-running process serves `/livez`, `/readyz`, `/startupz` and `/metrics`; 0 means none. A
    supervisor serves one port for all its processes."""
    metrics_host: str = "127.0.0.1"
    """Address of `metrics_port`. `0.0.0.0` serves every network, as probes and scrapes from other hosts need."""

    lifespan: Annotated[str, Meta(pattern=IMPORT_PATH)] = ""
    """Function that opens what the tasks of a process share, and closes it at the end: `package.module:function`. What
    it yields is `ctx.state`. Overrides a function declared with `@lifespan`."""

    dashboard_token: Secret = NO_SECRET
    """Token with which operators sign in to the dashboard; at least 16 characters. `rl dashboard` needs one to listen
    beyond loopback."""
    dashboard_viewer_token: Secret = NO_SECRET
    """Token with which viewers sign in to the dashboard: they see everything, and change nothing."""

    dashboard_trace_url: Annotated[str, Meta(pattern=r"^(https?://[^\s]+)?$")] = ""
    """Address of a trace in your tracing system, such as `https://jaeger.example.com/trace/{trace_id}`: the dashboard
    links tasks to it. `{trace_id}` and `{span_id}` are replaced."""
    dashboard_log_url: Annotated[str, Meta(pattern=r"^(https?://[^\s]+)?$")] = ""
    """Address of the log lines of a task, such as `https://logs.example.com/?q={task_id}`: the dashboard links tasks to
    it. `{task_id}` is replaced."""

    signing_keys: Secret = NO_SECRET
    """Sign payloads and run only signed ones: `id:base64,id2:base64`, the key in use first; each ≥ 16 bytes."""
    encryption_keys: Secret = NO_SECRET
    """Encrypt payloads, results (of locks too), checkpoints and steps: `id:base64,id2:base64`, the key in use first;
    each 16, 24 or 32 bytes. Requires the extra `encryption`."""
    redact: Annotated[str, Meta(pattern=IMPORT_PATH)] = ""
    """Hook that hides private data in payloads, results and failures: `package.module:function`. It is called with the
    task's name and the value, and returns what may be shown."""

    shard: int | None = field(default=None, init=False, repr=False)  # of which these are the settings; None: of all
    _whole: Settings | None = field(default=None, init=False, repr=False, compare=False)
    _given: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)

    if not TYPE_CHECKING:  # type checkers see the signature that the fields make

        def __init__(self, **given: Any) -> None:
            values, trouble = _checked_with_environment(given)
            if trouble:
                given.clear()  # tools that print local variables must not show a key
                raise ConfigurationError(trouble)
            self.__dict__.update(DEFAULTS, **values, _given=frozenset(values))

    def replace(self, **changes: Any) -> Settings:
        """Return these settings with some changed. Neither the environment nor the project is read again."""
        shards = {} if self.shard is None else {"shards": 1}  # one shard has one URL
        values, trouble = _checked(changes, changes, {name: getattr(self, name) for name in DEFAULTS} | shards)
        if trouble:
            changes.clear()
            raise ConfigurationError(trouble)
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__ | values, _given=self._given | values.keys())
        return made

    @property
    def is_sharded(self) -> bool:
        """Return whether these are the settings of several shards together, rather than of one namespace."""
        return self.shards > 1 and self.shard is None

    @property
    def whole(self) -> Settings:
        """Return the settings of all shards together."""
        return self._whole or self

    def of_shard(self, shard: int) -> Settings:
        """Return the settings of one shard, or those of the only namespace."""
        if self.shards == 1:
            return self
        whole, urls = self.whole, split_urls(self.whole.redis_url)
        made = object.__new__(type(self))
        made.__dict__.update(
            self.__dict__,
            namespace=whole.namespace if shard == ROOT else f"{whole.namespace}.{shard}",
            redis_url=urls[max(0, shard) % len(urls)],
            shard=shard,
            _whole=whole,
        )
        return made

    def is_given(self, name: str) -> bool:
        """Return whether a setting was set explicitly, rather than left to its default."""
        return name in self._given


DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Settings) if each.init}
_HINTS = get_type_hints(Settings, include_extras=True)
TYPES: dict[str, Any] = {name: _HINTS[name] for name in DEFAULTS}


def _checked_with_environment(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the checked values of the project, the environment and the code, of which the later ones win."""
    return _checked(_project_values() | _environment_values() | dict(given), given, DEFAULTS)


def _checked(given: Mapping[str, Any], in_code: Iterable[str], others: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the values, converted to the types of their fields, and a message that names all invalid ones.

    The caller raises, because it has no key in a local variable. `in_code`: the fields that code wrote out. The rest
    of the given ones come from the environment or the project. `others`: the values of all other fields.
    """
    values, wrong = {}, {}
    for name, value in given.items():
        if name not in TYPES:
            near = get_close_matches(name, TYPES, 1)
            wrong[name] = f"there is no such setting{f'; did you mean {near[0]}?' if near else ''}"
            continue
        try:
            values[name] = checked(value, TYPES[name])
        except WrongValueError as error:
            wrong[name] = str(error)
    if wrong:
        problems = "; ".join(
            f"{name if name in in_code else name_of_setting(name)}: {text}" for name, text in wrong.items()
        )
        where = "the environment" if _project is None else f"the environment or {_project.place}"
        where = "the code" if wrong.keys() <= set(in_code) else where
        return {}, f"invalid settings: {problems}; correct {where} and start again"
    trouble = trouble_with_shards({**others, **values})
    return values, f"invalid settings: {trouble}" if trouble else ""


def _environment_values() -> dict[str, str]:
    """Return the settings of the environment by the names of their fields."""
    prefix = "RELIER_"
    upper = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(prefix)}
    return {name: upper[prefix + name.upper()] for name in DEFAULTS if prefix + name.upper() in upper}


def use_project_settings(project: ProjectSettings | None) -> None:
    """Use the settings of a framework's project for every setting that the environment does not have.

    They are read whenever settings are built, so that a wrong one is reported to the caller that needs them.
    """
    global _project
    _project = project
    get_settings.cache_clear()


def _project_values() -> dict[str, Any]:
    """Return the project's settings by the names of their fields. Raise ConfigurationError if a name is unknown."""
    if _project is None:
        return {}
    given = _project.read()
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{_project.place} must be a dict such as {{'REDIS_URL': …}}, not {given!r:.60}")
    values: dict[str, Any] = {}
    for name, value in given.items():
        known = name.lower() if isinstance(name, str) else ""
        if known not in DEFAULTS:
            near = get_close_matches(known.removeprefix("relier_"), DEFAULTS, 1)
            hint = f"did you mean {near[0].upper()!r}?" if near else "see docs/reference/settings.md for the names"
            raise ConfigurationError(f"{_project.place} has an unknown setting {name!r:.60}; {hint}")
        if known in values:
            raise ConfigurationError(f"{_project.place} has the setting {known.upper()!r} twice; remove one")
        values[known] = value
    return values


def name_of_setting(name: str) -> str:
    """Return the source of a setting's value, as users know it: its variable, or its place in the project."""
    variable = f"RELIER_{name.upper()}"
    in_environment = any(each.upper() == variable for each in os.environ)
    if not in_environment and name in {str(each).lower() for each in _given_by_project()}:
        return f"{_project.place if _project else ''}[{name.upper()!r}]"
    return variable


def _given_by_project() -> Iterable[Any]:
    given = _project.read() if _project else {}
    return given if isinstance(given, Mapping) else ()


def environment(settings: Settings) -> dict[str, str]:
    """Return these settings as environment variables, for a child process. Those of a shard name all shards."""
    values = {name: getattr(settings, name) for name in DEFAULTS}
    values |= {name: getattr(settings.whole, name) for name in ("namespace", "redis_url")}
    return {
        f"RELIER_{name.upper()}": value.get_secret_value() if isinstance(value, Secret) else str(value)
        for name, value in values.items()
        if value is not None
    }


def unknown_variables(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables RELIER_… of the environment that nothing reads, each with the closest known one, or ""."""
    prefix, found = "RELIER_", {}
    known = [*(name.upper() for name in DEFAULTS), OUTBOX_DATABASE.removeprefix(prefix), *BACKUP_OPTIONS]
    for variable in sorted(os.environ if given is None else given):
        name = variable.upper().removeprefix(prefix)
        if variable.upper().startswith(prefix) and name not in known:
            found[variable] = "".join(prefix + close for close in get_close_matches(name, known, 1))
    return found


@cache
def get_settings() -> Settings:
    """Return the settings from the environment and the project, read once."""
    return Settings()
