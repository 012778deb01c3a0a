"""What every error reply of Redis and Valkey means: one table, one judgement, used by all who call the store.

A judgement answers two questions. Does the store send the call again by itself? And what does the error say to those
who must not give up (a running task's step, a settling worker, a relay): wait, or stop?

    LOAD      the script is not there: load it and send the call again, at no cost; never reaches a caller
    WAIT      not now: send the call again until its deadline; then StoreUnavailableError, so wait
    LOOK      not now, or not here: look for the master first, then as WAIT
    REFUSED   the server's state or set-up forbids it: the caller gets the error at once; StoreUnavailableError, so wait
    FINAL     the same call would get the same answer: StoreReplyError, so stop

No reply that is sent again can come from a script that has written something: servers check these conditions before a
script's first write.
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
    """What to do about an error reply; see the top of this module."""

    LOAD = auto()
    WAIT = auto()
    LOOK = auto()
    REFUSED = auto()
    FINAL = auto()


# Every code that a Redis or Valkey server sends (a test reads them from the servers' binaries).
MEANINGS: dict[str, tuple[Judgement, type[RelierError]]] = {
    "NOSCRIPT": (Judgement.LOAD, StoreNotReadyError),  # restarted, flushed or promoted: scripts are not data
    # not now
    "BUSY": (Judgement.WAIT, StoreNotReadyError),  # somebody's script or module command runs for seconds
    "UNKILLABLE": (Judgement.WAIT, StoreNotReadyError),  # the same, to SCRIPT KILL
    "NOREPLICAS": (Judgement.WAIT, StoreNotReadyError),  # min-replicas-to-write is not met
    "NOMASTERLINK": (Judgement.WAIT, StoreNotReadyError),
    "INPROG": (Judgement.WAIT, StoreNotReadyError),  # a Sentinel fails over
    "NOQUORUM": (Judgement.WAIT, StoreNotReadyError),
    "NOGOODSLAVE": (Judgement.WAIT, StoreNotReadyError),
    "NOGOODPRIMARY": (Judgement.WAIT, StoreNotReadyError),
    "TRYAGAIN": (Judgement.WAIT, StoreNotReadyError),  # a slot migrates
    # A slot migrates, and KEYS[1] of our scripts is a prefix, never a key: its node answers ASK to every call. Waiting
    # is the only safe reaction: the namespace's keys are on two nodes, and a script must see all of them.
    "ASK": (Judgement.LOOK, StoreNotReadyError),
    "MOVED": (Judgement.LOOK, StoreNotReadyError),
    "CLUSTERDOWN": (Judgement.LOOK, StoreNotReadyError),
    "LOADING": (Judgement.LOOK, StoreNotReadyError),
    "MASTERDOWN": (Judgement.LOOK, StoreNotReadyError),
    "READONLY": (Judgement.LOOK, StoreReadOnlyError),
    "REDIRECT": (Judgement.LOOK, StoreReadOnlyError),  # Valkey 8: the same, with the primary's address
    "UNBLOCKED": (Judgement.LOOK, StoreNotReadyError),  # a blocking command ended by a change of role
    # the state or the set-up of the server
    "OOM": (Judgement.REFUSED, StoreFullError),
    "MISCONF": (Judgement.REFUSED, StoreDiskError),
    "NOAUTH": (Judgement.REFUSED, StoreSetupError),
    "WRONGPASS": (Judgement.REFUSED, StoreSetupError),
    "NOPERM": (Judgement.REFUSED, StoreSetupError),
    "DENIED": (Judgement.REFUSED, StoreSetupError),  # protected mode
    "NOPROTO": (Judgement.REFUSED, StoreSetupError),
    # about the command itself, not about the moment
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

# Replies whose code is only ERR, but whose text says more: the code they stand for.
TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"max number of clients"), "BUSY"),
    (re.compile(r"Script killed by user"), "BUSY"),  # only a script that has not written can be killed
    (re.compile(r"unauthenticated (multi)?bulk length"), "NOAUTH"),  # more than 10 arguments, or 16 KiB in one
    (re.compile(r"ACL failure in script|The user executing the script"), "NOPERM"),  # a command inside a script
    (re.compile(r"Script attempted to access (a|keys).*(non local|different slot)"), "ASK"),
    (re.compile(r"Script attempted to .*cluster is down|slot which is not served"), "CLUSTERDOWN"),
)

ADVICE: dict[type[RelierError], str] = {
    RedisConnectionError: "see that it runs and that RELIER_REDIS_URL leads to it; repeating the call is safe",
    StoreNotReadyError: "nothing was written; this should pass by itself; if not, see the server's log",
    StoreFullError: "nothing was written; raise maxmemory or remove data",
    StoreDiskError: "nothing was written; give the server disk space and write access to its folder",
    StoreReadOnlyError: "nothing was written; point RELIER_REDIS_URL to the master, or at Sentinel",
    StoreSetupError: "check the user, the password and the ACL in RELIER_REDIS_URL",
    StoreReplyError: "see the server's log; repeating the call is safe",
}
MOVED_ADVICE = "nothing was written; for a cluster RELIER_REDIS_URL begins with redis+cluster://"

# A script's inner error as servers before 7.0 report it: "ERR Error running script (…): … -OOM command not allowed"
INNER = re.compile(r"^ERR Error running script.*?: -(?P<code>[A-Z]+) ", re.DOTALL)


def code_of(reply: ReplyError) -> str:
    """Return the reply's code. A script's inner error counts as the reply's own."""
    text = str(reply)
    inner = INNER.match(text)
    if inner and inner["code"] in MEANINGS:
        return inner["code"]
    code = text.partition(" ")[0]
    if code == "ERR":
        return next((known for pattern, known in TEXTS if pattern.search(text)), code)
    return code


def trouble_of(reply: ReplyError) -> AttemptError:
    """Return the attempt error an error reply stands for."""
    judgement, error = MEANINGS.get(code_of(reply), UNKNOWN)
    return AttemptError(
        f"it answered {str(reply)!r}",
        error,
        again=judgement in (Judgement.LOAD, Judgement.WAIT, Judgement.LOOK),
        elsewhere=judgement is Judgement.LOOK,
        load=judgement is Judgement.LOAD,
        sent=False,
    )


def final_error(trouble: AttemptError, shown: str, attempts: int) -> RelierError:
    """Return the error for the caller: what happened, why, what to do."""
    tried = f" in {attempts} attempts" if attempts > 1 else ""
    what = "gave no answer" if trouble.error is RedisConnectionError else "did not do the call"
    advice = MOVED_ADVICE if "answered 'MOVED" in str(trouble) else ADVICE[trouble.error]
    return trouble.error(f"the store at {shown} {what}{tried}: {trouble}; {advice}")
