"""Define what every error reply of Redis and Valkey means, in one table that all callers of the store use.

A judgement answers two questions. Does the store send the call again by itself? And should callers that must not give
up (a running task's step, a worker that settles, a relay) wait or stop when they get the error?

    LOAD      the server does not have the script: load it and send the call again, at no cost; never reaches a caller
    WAIT      not now: send the call again until its deadline; after that, StoreUnavailableError: callers wait
    LOOK_UP   not now, or not on this server: look up the master first, then as WAIT
    REFUSED   the server's state or configuration forbids the call: raise StoreUnavailableError at once; callers wait
    FINAL     the same call would get the same answer: raise StoreReplyError; callers stop

Calls are sent again only after replies that no script gives once it has written: servers check these conditions before
a script's first write.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from hiredis import ReplyError

from relier.errors import (
    RedisConnectionError,
    RelierError,
    StoreDiskError,
    StoreFullError,
    StoreNotReadyError,
    StoreReadOnlyError,
    StoreReplyError,
    StoreSetupError,
)
from relier.store.policy import AttemptError


class Judgement(Enum):
    """Say what to do about an error reply. The top of this module explains each value."""

    LOAD = auto()
    WAIT = auto()
    LOOK_UP = auto()
    REFUSED = auto()
    FINAL = auto()


# Every code that a Redis or Valkey server sends (a test reads them from the servers' binaries).
MEANINGS: dict[str, tuple[Judgement, type[RelierError]]] = {
    "NOSCRIPT": (Judgement.LOAD, StoreNotReadyError),  # restarted, flushed or promoted: scripts are not data
    # Not now:
    "BUSY": (Judgement.WAIT, StoreNotReadyError),  # a script or module command has been running for seconds
    "UNKILLABLE": (Judgement.WAIT, StoreNotReadyError),  # the same, as a reply to SCRIPT KILL
    "NOREPLICAS": (Judgement.WAIT, StoreNotReadyError),  # min-replicas-to-write is not met
    "NOMASTERLINK": (Judgement.WAIT, StoreNotReadyError),
    "INPROG": (Judgement.WAIT, StoreNotReadyError),  # Sentinel is failing over
    "NOQUORUM": (Judgement.WAIT, StoreNotReadyError),
    "NOGOODSLAVE": (Judgement.WAIT, StoreNotReadyError),
    "NOGOODPRIMARY": (Judgement.WAIT, StoreNotReadyError),
    "TRYAGAIN": (Judgement.WAIT, StoreNotReadyError),  # a slot is migrating
    # A slot is migrating. KEYS[1] of our scripts is a prefix, never a key, so its node answers ASK to every call.
    # Waiting is the only safe reaction: the namespace's keys are on two nodes, and a script must see all of them.
    "ASK": (Judgement.LOOK_UP, StoreNotReadyError),
    "MOVED": (Judgement.LOOK_UP, StoreNotReadyError),
    "CLUSTERDOWN": (Judgement.LOOK_UP, StoreNotReadyError),
    "LOADING": (Judgement.LOOK_UP, StoreNotReadyError),
    "MASTERDOWN": (Judgement.LOOK_UP, StoreNotReadyError),
    "READONLY": (Judgement.LOOK_UP, StoreReadOnlyError),
    "REDIRECT": (Judgement.LOOK_UP, StoreReadOnlyError),  # Valkey 8: the same, with the primary's address
    "UNBLOCKED": (Judgement.LOOK_UP, StoreNotReadyError),  # a change of role ended a blocking command
    # The server's state or configuration forbids the call:
    "OOM": (Judgement.REFUSED, StoreFullError),
    "MISCONF": (Judgement.REFUSED, StoreDiskError),
    "NOAUTH": (Judgement.REFUSED, StoreSetupError),
    "WRONGPASS": (Judgement.REFUSED, StoreSetupError),
    "NOPERM": (Judgement.REFUSED, StoreSetupError),
    "DENIED": (Judgement.REFUSED, StoreSetupError),  # protected mode
    "NOPROTO": (Judgement.REFUSED, StoreSetupError),
    # The command itself is wrong, whenever it is sent:
    "ERR": (Judgement.FINAL, StoreReplyError),
    "WRONGTYPE": (Judgement.FINAL, StoreReplyError),
    "CROSSSLOT": (Judgement.FINAL, StoreReplyError),
    "EXECABORT": (Judgement.FINAL, StoreReplyError),
    "NOTBUSY": (Judgement.FINAL, StoreReplyError),
    "BUSYKEY": (Judgement.FINAL, StoreReplyError),
    "BUSYGROUP": (Judgement.FINAL, StoreReplyError),
    "NOGROUP": (Judgement.FINAL, StoreReplyError),
    "INVALIDOBJ": (Judgement.FINAL, StoreReplyError),
    "IOERR": (Judgement.FINAL, StoreReplyError),  # MIGRATE only
}
UNKNOWN = (Judgement.FINAL, StoreReplyError)

# Replies whose code is only ERR but whose text says more, with the code that each of them means.
TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"max number of clients"), "BUSY"),
    (re.compile(r"Script killed by user"), "BUSY"),  # only a script that has not written anything can be killed
    (re.compile(r"unauthenticated (multi)?bulk length"), "NOAUTH"),  # more than 10 arguments, or 16 KiB in one
    (re.compile(r"ACL failure in script|The user executing the script"), "NOPERM"),  # a command inside a script
    (re.compile(r"Script attempted to access (a|keys).*(non local|different slot)"), "ASK"),
    (re.compile(r"Script attempted to .*cluster is down|slot which is not served"), "CLUSTERDOWN"),
)

ADVICE: dict[type[RelierError], str] = {
    RedisConnectionError: "check that it is running and that RELIER_REDIS_URL points to it; repeating the call is safe",
    StoreNotReadyError: "nothing was written; this is usually temporary; if it persists, check the server's log",
    StoreFullError: "nothing was written; raise maxmemory or remove data",
    StoreDiskError: "nothing was written; free disk space, or give the server write access to its folder",
    StoreReadOnlyError: "nothing was written; point RELIER_REDIS_URL at the master or at Sentinel",
    StoreSetupError: "check the user and the password in RELIER_REDIS_URL, and the user's ACL on the server",
    StoreReplyError: "check the server's log; repeating the call is safe",
}
MOVED_ADVICE = "nothing was written; if the server is part of a cluster, set RELIER_REDIS_URL to a redis+cluster:// URL"

# An error inside a script, as servers before 7.0 report it: "ERR Error running script (…): … -OOM command not allowed"
INNER = re.compile(r"^ERR Error running script.*?: -(?P<code>[A-Z]+) ", re.DOTALL)


def code_of(reply: ReplyError) -> str:
    """Return the reply's code. The code of an error inside a script counts as the reply's own."""
    text = str(reply)
    inner = INNER.match(text)
    if inner and inner["code"] in MEANINGS:
        return inner["code"]
    code = text.partition(" ")[0]
    if code == "ERR":
        return next((known for pattern, known in TEXTS if pattern.search(text)), code)
    return code


def failure_of(reply: ReplyError) -> AttemptError:
    """Return the AttemptError for an error reply."""
    judgement, error = MEANINGS.get(code_of(reply), UNKNOWN)
    return AttemptError(
        f"the server replied {str(reply)!r}",
        error,
        retry=judgement in (Judgement.LOAD, Judgement.WAIT, Judgement.LOOK_UP),
        new_lookup=judgement is Judgement.LOOK_UP,
        load_script=judgement is Judgement.LOAD,
        sent=False,
    )


def final_error(failure: AttemptError, redacted_url: str, attempts: int) -> RelierError:
    """Return the error for the caller, which says what happened, why, and what to do."""
    tried = f" in {attempts} attempts" if attempts > 1 else ""
    what = "gave no answer" if failure.error is RedisConnectionError else "did not run the call"
    advice = MOVED_ADVICE if "replied 'MOVED" in str(failure) else ADVICE[failure.error]
    return failure.error(f"the store at {redacted_url} {what}{tried}: {failure}; {advice}")
