"""Which shards a command concerns. A route returns the sessions to run it with, and the arguments for each.

@with_session
@routed(to_task("task_id"))
def why(session: Session, task_id: str) -> Exit: ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from relier.cli.find.batch_ids import full_batch_id
from relier.cli.find.task_ids import full_id
from relier.cli.session import CommandFailure, Exit, Session
from relier.cli.table import MADE
from relier.errors import ShardsError, StoreError
from relier.ledger.limit_overview import read_limits
from relier.ledger.pages import read_stats
from relier.settings.shards import shard_of
from relier.store.connect.address import target_of

F = TypeVar("F", bound=Callable[..., Any])
Given = dict[str, Any]
Calls = list[tuple[Session, Given]]
Route = Callable[[Session, Sequence[Session], Given], Calls]
Complete = Callable[[Session, str], str]


def routed(route: Route) -> Callable[[F], F]:
    """Give a command its route."""

    def mark(function: F) -> F:
        function.shard_route = route  # type: ignore[attr-defined]
        return function

    return mark


def every_shard(_: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command on every shard, one after the other."""
    return [(session, given) for session in sessions]


def once(session: Session, _: Sequence[Session], given: Given) -> Calls:
    """Run the command once, with the settings of all shards: it does not read the store."""
    return [(session, given)]


def first_shard(_: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command on the first shard, where relays are members."""
    return [(sessions[0], given)]


def refused(what: str, instead: str) -> Route:
    """Refuse the command in a namespace with shards."""

    def route(session: Session, _: Sequence[Session], __: Given) -> Calls:
        raise ShardsError(f"{what} does not support RELIER_SHARDS yet ({session.settings.shards} here): {instead}")

    return route


def backup_route(session: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command once if all shards are on one server. Otherwise it needs --shard."""
    if len({each.settings.redis_url for each in sessions}) > 1 or target_of(sessions[0].settings).kind == "cluster":
        raise ShardsError(
            f"a backup holds one server, but the {session.settings.shards} shards may be on several; name one shard of "
            f"each server: rl --shard 0 backup …; see docs/how-to/shards.md"
        )
    return first_shard(session, sessions, given)


def one_shard_with(option: str) -> Route:
    """Run the command on every shard, unless the option is given, which makes sense for one: then it needs --shard."""

    def route(session: Session, sessions: Sequence[Session], given: Given) -> Calls:
        if given[option] and len(sessions) > 1:
            raise click.UsageError(f"--{option} is for one shard; choose it: rl --shard 0 …")
        return every_shard(session, sessions, given)

    return route


def to_task(name: str = "task_id") -> Route:
    """Run the command on the shard of the task whose id, or the beginning of it, is the argument `name`."""
    return lambda _, sessions, given: [(_home(sessions, given[name], full_id), given)]


def to_batch(name: str = "batch_id") -> Route:
    """Run the command on the shard of a workflow."""
    return lambda _, sessions, given: [(_home(sessions, given[name], full_batch_id), given)]


def to_schedule(name: str = "name") -> Route:
    """Run the command on the shard of a schedule."""
    return lambda _, sessions, given: [(_owner(sessions, given[name]), given)]


def to_selection(_: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command on the shards of the selected tasks or, if a filter selects them, on every shard."""
    selection = given["selection"]
    if selection.by_filter:
        return [(session, given) for session in sessions]
    homes: dict[int, list[str]] = {}
    for word in selection.ids:
        homes.setdefault(sessions.index(_home(sessions, word, full_id)), []).append(word)
    parts = [(sessions[at], replace(selection, ids=tuple(words))) for at, words in sorted(homes.items())]
    return [(session, given | {"selection": part}) for session, part in parts]


def to_nodes(_: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command on the shards of the nodes whose ids begin with `ids`, or on every shard if there are none."""
    if not given["ids"]:
        return [(session, given) for session in sessions]
    known = {session: [node.node_id for node in _nodes(session)] for session in sessions}
    homes: dict[Session, list[str]] = {}
    for word in given["ids"]:
        near = [session for session, ids in known.items() if any(each.startswith(word) for each in ids)]
        if len(near) > 1:
            raise CommandFailure(f"nodes of several shards begin with {word!r}; give the whole id", Exit.PROBLEM)
        homes.setdefault((near or list(sessions))[0], []).append(word)
    return [(session, given | {"ids": tuple(words)}) for session, words in homes.items()]


def to_limit(_: Session, sessions: Sequence[Session], given: Given) -> Calls:
    """Run the command on every shard. A shard where no live task has the limit gets it too, if another knows it."""
    known = any(given["name"] in read_limits(session.run, session.ledger).names() for session in _answering(sessions))
    return [(session, given | {"force": True} if known else given) for session in sessions]


def _nodes(session: Session) -> Sequence[Any]:
    try:
        return read_stats(session.run, session.ledger).nodes
    except StoreError:  # its nodes cannot be ordered now
        return ()


def _answering(sessions: Sequence[Session]) -> list[Session]:
    found = []
    for session in sessions:
        try:
            session.store.command("PING")
        except StoreError:
            continue
        found.append(session)
    return found


def _owner(sessions: Sequence[Session], name: str) -> Session:
    """Return the session of the shard to which an id or a name belongs."""
    if len(sessions) == 1:
        return sessions[0]
    return sessions[shard_of(name, sessions[0].settings.shards)]


def _home(sessions: Sequence[Session], word: str, complete: Complete) -> Session:
    """Return the session of the shard where an id lies that `word` is, or begins."""
    owner = _owner(sessions, word)
    if MADE.fullmatch(word) or len(sessions) == 1:
        return owner
    found: dict[Session, str] = {}
    for session in [owner, *(each for each in sessions if each is not owner)]:
        try:
            whole = complete(session, word)
        except StoreError as error:
            click.echo(f"rl: shard {session.settings.shard} was not searched: {error}", err=True)
            continue
        if whole != word:
            found[session] = whole
    if len(found) > 1:
        raise CommandFailure(f"several ids begin with {word!r}; give more of the id:", Exit.PROBLEM, [*found.values()])
    return next(iter(found), owner)
