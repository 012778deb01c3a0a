"""What every command shares: its options, the store and the ledger they lead to, and what an error ends with."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar

import click
from pydantic import ValidationError

from relier.cli.main import AS_JSON
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
from relier.keyring import Keyring
from relier.ledger import keys, replies
from relier.ledger.ledger import Ledger, load_scripts
from relier.settings import Settings
from relier.store.call import Call
from relier.store.connect.address import parse_url
from relier.store.sync_store import SyncStore
from relier.submit.client import place_of

T = TypeVar("T")


class Exit(IntEnum):
    """How a command ends. The help of `rl` tells the same (EXIT_CODES in main.py)."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    STORE = 3


class Failure(click.ClickException):
    """An error of Relier's: one line to stderr, never a traceback."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        click.echo(f"rl: {self.message}", file=file, err=file is None)


def failure_of(error: RelierError) -> Failure:
    odd_key = isinstance(error, StoreReplyError) and "WRONGTYPE" in str(error)
    hint = "; something else wrote to a key of this namespace: `rl audit` says which" if odd_key else ""
    return Failure(f"{error}{hint}", exit_code_of(error))


def exit_code_of(error: RelierError) -> Exit:
    """StoreReplyError is a store that was reached and answered oddly: a problem, not an outage."""
    if isinstance(error, LayoutError | StoreReplyError):
        return Exit.PROBLEM
    if isinstance(error, ConfigurationError | InvalidSubmissionError | PayloadTooLargeError):
        return Exit.USAGE
    return Exit.STORE if isinstance(error, StoreError) else Exit.PROBLEM


class Session:
    """The store and the ledger one command works on, opened when first asked for."""

    def __init__(self, url: str | None = None, namespace: str | None = None, *, as_json: bool = False) -> None:
        self.url = url
        self.namespace = namespace
        self.as_json = as_json
        self._open: SyncStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()

    @cached_property
    def settings(self) -> Settings:
        return settings_of(self.url, self.namespace)

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
        """A store on which nothing was looked at yet, with some settings changed."""
        # The store warns of a server without a disk in its log; to people that is told by `rl doctor`.
        logging.getLogger("relier").addHandler(logging.NullHandler())
        self._open = SyncStore(self.settings.model_copy(update=changed), load_scripts())
        return self._open

    def run(self, call: Call[T]) -> T:
        try:
            return self.store.run(call)
        except TaskNotFoundError as error:
            raise self._not_here(error) from error

    def run_many(self, calls: Iterable[Call[T]]) -> list[T | RelierError]:
        answers = self.store.run_many(calls)
        return [self._not_here(one) if isinstance(one, TaskNotFoundError) else one for one in answers]

    def _not_here(self, error: TaskNotFoundError) -> TaskNotFoundError:
        meta = keys.spell(self.ledger.prefix, "meta")
        emptied = self.store.command("HEXISTS", meta, "emptied", retry=True)
        why = "; the store was emptied or replaced, see `rl doctor`" if emptied else ""
        return TaskNotFoundError(f"{error}{why}; I looked in {self.where}")

    @property
    def where(self) -> str:
        """Which namespace of which store, for people who wonder whether they look in the right place."""
        return place_of(self.settings)

    def _check_layout(self, store: SyncStore) -> None:
        """Reads must not mark a namespace as ours, so this does not `open` it."""
        layout = store.command("HGET", keys.spell(self.ledger.prefix, "meta"), "layout", retry=True)
        if layout is not None:
            replies.opened(self.settings.namespace, [layout, b""])


def settings_of(url: str | None, namespace: str | None) -> Settings:
    """The settings of the environment, with what the command line says instead."""
    given: dict[str, Any] = {}
    if url is not None:
        _check_url(url)
        given |= {"redis_url": url, "redis_use_sentinel": False}  # or a URL typed here would be ignored
    if namespace is not None:
        given["namespace"] = namespace
    try:
        return Settings(**given)
    except ValidationError as error:
        wrong = "; ".join(
            f"{_origin('_'.join(map(str, e['loc'])), given)}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise ConfigurationError(f"settings do not fit: {wrong}; correct that and run the command again") from error


def _check_url(url: str) -> None:
    """The store's message names the variable to correct; here it was an option."""
    try:
        parse_url(url)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace("RELIER_REDIS_URL", "--url")) from error


def _origin(field: str, given: dict[str, Any]) -> str:
    options = {"redis_url": "--url", "namespace": "--namespace"}
    return options[field] if field in given and field in options else f"RELIER_{field.upper()}"


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command --json, --url and --namespace, and hands it a Session. It returns its exit code; None is 0."""

    @click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help="Print one JSON document."
    )
    @click.option("--url", metavar="URL", help="The store, instead of RELIER_REDIS_URL.")
    @click.option("--namespace", metavar="NAME", help="The namespace, instead of RELIER_NAMESPACE.")
    @functools.wraps(function)
    def command(**given: Any) -> None:
        ctx = click.get_current_context()
        for name in ("as_json", "url", "namespace"):
            del given[name]
        session = Session(said(ctx, "url"), said(ctx, "namespace"), as_json=bool(said(ctx, "as_json")))
        with session:
            code = function(session, **given)
        if code:
            ctx.exit(int(code))

    return command


def _note_json(ctx: click.Context, _: click.Parameter, as_json: bool) -> bool:
    ctx.meta[AS_JSON] = as_json or ctx.meta.get(AS_JSON, False)
    return as_json


def said(ctx: click.Context, name: str) -> Any:
    """An option's value as the nearest command says it: `rl --url X tasks`, `rl tasks --url X`, or both."""
    at: click.Context | None = ctx
    while at is not None:
        if at.params.get(name) not in (None, False):  # an empty text was said too: it must not fall back silently
            return at.params[name]
        at = at.parent
    return None
