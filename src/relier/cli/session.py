"""Shared by all commands: options, settings, store and ledger, and the exit code of each error."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar

import click
from click.core import ParameterSource

from relier.cli.command_groups import store_options
from relier.codec.keyring import Keyring
from relier.errors import (
    ConfigurationError,
    InvalidSubmissionError,
    LayoutError,
    PayloadTooLargeError,
    RelierError,
    StoreError,
    StoreReplyError,
    TaskNotFoundError,
)
from relier.ledger import keys, replies
from relier.ledger.ledger import Ledger, scripts_of
from relier.settings import Settings
from relier.settings.shards import split_urls
from relier.store.call import Call
from relier.store.connect.address import parse_url
from relier.store.sync_store import SyncStore
from relier.submit.client import place_of

T = TypeVar("T")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")


class Exit(IntEnum):
    """Exit codes. `rl --help` documents them (EXIT_CODES in main.py)."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    STORE = 3


class CommandFailure(click.ClickException):
    """An error shown as one line on stderr, never as a traceback. `details` are shown below it, one per line."""

    def __init__(self, message: str, code: Exit, details: Sequence[str] = ()) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance
        self.details = tuple(details)

    def show(self, file: Any = None) -> None:
        click.echo("\n  ".join((f"rl: {self.message}", *self.details)), file=file, err=file is None)


def failure_of(error: RelierError) -> CommandFailure:
    """Return the failure to show for an error."""
    odd_key = isinstance(error, StoreReplyError) and "WRONGTYPE" in str(error)
    hint = "; another program wrote to a key of this namespace; run `rl audit` to find the key" if odd_key else ""
    return CommandFailure(f"{error}{hint}", exit_code_of(error))


def exit_code_of(error: RelierError) -> Exit:
    """Return the exit code for an error. StoreReplyError is a problem, not an outage: the store did answer."""
    if isinstance(error, LayoutError | StoreReplyError):
        return Exit.PROBLEM
    if isinstance(error, ConfigurationError | InvalidSubmissionError | PayloadTooLargeError):
        return Exit.USAGE
    return Exit.STORE if isinstance(error, StoreError) else Exit.PROBLEM


class Session:
    """The store and the ledger of one command, opened on first use."""

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        *,
        as_json: bool = False,
        shard: int | None = None,
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.as_json = as_json
        self._shard = shard
        self._open: SyncStore | None = None
        self._shards: list[Session] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
        for shard in self._shards:
            shard.__exit__(kind, error, trace)

    @cached_property
    def settings(self) -> Settings:
        settings = settings_of(self.url, self.namespace)
        return settings if self._shard is None else settings.of_shard(self._shard)

    @property
    def is_sharded(self) -> bool:
        """Whether the command is for several shards. Invalid settings are reported by the command itself."""
        try:
            return self.settings.is_sharded
        except ConfigurationError:
            return False

    @property
    def shards(self) -> list[Session]:
        """The sessions of all shards, in order. They end with this session."""
        if not self._shards:
            numbers = range(self.settings.shards)
            self._shards = [Session(self.url, self.namespace, as_json=self.as_json, shard=n) for n in numbers]
        return self._shards

    @cached_property
    def keyring(self) -> Keyring:
        return Keyring.of(self.settings)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.settings)

    @cached_property
    def store(self) -> SyncStore:
        store = self.bare_store()
        self._check_layout(store)
        return store

    def bare_store(self, **changed: Any) -> SyncStore:
        """Open a store without checking its layout, with some settings changed."""
        # The store logs a warning about servers without persistence; here `rl doctor` reports that.
        logging.getLogger("relier").addHandler(logging.NullHandler())
        self._open = SyncStore(self.settings.replace(**changed), scripts_of(self.settings))
        return self._open

    def run(self, call: Call[T]) -> T:
        try:
            return self.store.run(call)
        except TaskNotFoundError as error:
            raise self.not_here(error) from error

    def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        answers = self.store.run_many(calls)
        return [self.not_here(one) if isinstance(one, TaskNotFoundError) else one for one in answers]

    def not_here(self, error: TaskNotFoundError) -> TaskNotFoundError:
        """Return the error for a task that does not exist, with where it was searched."""
        meta = keys.spell(self.ledger.prefix, "meta")
        emptied = self.store.command("HEXISTS", meta, "emptied", retry=True)
        why = "; the store was emptied or replaced, see `rl doctor`" if emptied else ""
        return TaskNotFoundError(f"{error}{why}; searched {self.where}")

    @property
    def where(self) -> str:
        """The namespace and the store, so that messages show where the command looked."""
        return place_of(self.settings)

    def _check_layout(self, store: SyncStore) -> None:
        """Check the layout and the number of shards without `open`, which would create the namespace."""
        meta = keys.spell(self.ledger.prefix, "meta")
        layout, born = store.command("HMGET", meta, "layout", "born", retry=True)
        if layout is not None:
            shards = self.settings.shards
            replies.opened(self.settings.namespace, 1 if born is None else shards, [layout, born or b""])


def settings_of(url: str | None, namespace: str | None) -> Settings:
    """Return the settings from the environment, overridden by the command line."""
    given: dict[str, Any] = {}
    if url is not None:
        _check_url(url)
        given |= {"redis_url": url, "redis_use_sentinel": False}  # otherwise Sentinel settings would win over --url
    if namespace is not None:
        given["namespace"] = namespace
    try:
        return Settings(**given)
    except ConfigurationError as error:
        raise ConfigurationError(_with_options_named(str(error), given)) from error


def _check_url(url: str) -> None:
    """Check --url, and name the option instead of the variable in the error."""
    try:
        for each in split_urls(url) or (url,):
            parse_url(each)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("RELIER_REDIS_URL", "--url")) from error


def _with_options_named(message: str, given: dict[str, Any]) -> str:
    """Return the message of an error with the names of options instead of those of settings."""
    for name, option in (("redis_url", "--url"), ("namespace", "--namespace")):
        if name in given:
            message = message.replace(f"{name}:", f"{option}:")
    return message.replace("correct the code and start again", "correct the option and run the command again")


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --url and --namespace to a command and pass it a Session. It returns an exit code; None means 0."""

    @store_options
    @functools.wraps(function)
    def command(**given: Any) -> None:
        ctx = click.get_current_context()
        for name in ("as_json", "url", "namespace"):
            del given[name]
        with session_of(ctx) as session:
            if session.is_sharded:
                from relier.cli.shards.over import run_over_shards

                code = run_over_shards(session, function, given)
            else:
                code = function(session, **given)
        if code:
            ctx.exit(int(code))

    return command


def only_shard(session: Session, given: str) -> Session:
    """Return the session of the shard that --shard names."""
    shard = shard_number(session.settings, given)
    return Session(session.url, session.namespace, as_json=session.as_json, shard=shard)


def shard_number(settings: Settings, given: str) -> int:
    """Return the number of the shard that --shard names. Raise ConfigurationError if there is none."""
    if not given.isdecimal() or int(given) >= settings.shards:
        raise ConfigurationError(
            f"--shard {given}: there is no such shard, because RELIER_SHARDS is {settings.shards}; give a number from "
            f"0 to {settings.shards - 1}"
        )
    return int(given)


def session_of(ctx: click.Context) -> Session:
    """Return a session with the options of a command, or of the groups above it."""
    as_json = bool(option_value(ctx, "as_json"))
    session = Session(option_value(ctx, "url"), option_value(ctx, "namespace"), as_json=as_json)
    shard = option_value(ctx, "shard")
    return session if shard is None else only_shard(session, shard)


def option_value(ctx: click.Context, name: str) -> Any:
    """Return an option given to this command or, failing that, to a group above it: `rl --url X tasks`."""
    at: click.Context | None = ctx
    while at is not None:
        if at.params.get(name) not in (None, False):  # an empty string was given too, and must not be ignored
            return at.params[name]
        at = at.parent
    return None


def not_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Refuse an argument or option that is given and empty, like a shell variable that is not set. It would select
    everything instead of nothing."""
    texts = value if isinstance(value, tuple) else (value,)
    is_given = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    if is_given and "" in texts:
        raise click.BadParameter("it is empty; give a value, or leave it out", ctx, param)
    return value
