"""What an error reply means: which error it is, and whether asking again can help."""

from __future__ import annotations

import re

from hiredis import ReplyError

from relier.errors import (
    ConfigurationError,
    RedisConnectionError,
    RelierError,
    StoreDiskError,
    StoreFullError,
    StoreReadOnlyError,
    StoreReplyError,
)
from relier.store.policy import AttemptError

# code: error, another attempt may help, look for the master first
MEANINGS: dict[str, tuple[type[RelierError], bool, bool]] = {
    "NOSCRIPT": (StoreReplyError, True, False),
    "READONLY": (StoreReadOnlyError, True, True),
    "MASTERDOWN": (RedisConnectionError, True, True),
    "LOADING": (RedisConnectionError, True, True),
    "CLUSTERDOWN": (RedisConnectionError, True, True),
    "TRYAGAIN": (RedisConnectionError, True, True),
    "MOVED": (StoreReplyError, True, True),
    "ASK": (StoreReplyError, True, True),
    "UNBLOCKED": (StoreReplyError, True, True),
    "BUSY": (RedisConnectionError, True, False),
    "NOREPLICAS": (StoreReplyError, True, False),
    "OOM": (StoreFullError, False, False),
    "MISCONF": (StoreDiskError, False, False),
    "NOAUTH": (ConfigurationError, False, False),
    "WRONGPASS": (ConfigurationError, False, False),
    "NOPERM": (ConfigurationError, False, False),
}

ADVICE: dict[type[RelierError], str] = {
    RedisConnectionError: "see that it runs and that RELIER_REDIS_URL leads to it; repeating the call is safe",
    StoreFullError: "nothing was written; raise maxmemory or remove data",
    StoreDiskError: "nothing was written; give the server disk space and write access to its folder",
    StoreReadOnlyError: "nothing was written; point RELIER_REDIS_URL to the master, or at Sentinel",
    ConfigurationError: "check the user, the password and the ACL in RELIER_REDIS_URL",
    StoreReplyError: "see the server's log; repeating the call is safe",
}

# A script's inner error as servers before 7.0 report it: "ERR Error running script (…): … -OOM command not allowed"
INNER = re.compile(r"^ERR Error running script.*?: -(?P<code>[A-Z]+) ", re.DOTALL)


def code_of(reply: ReplyError) -> str:
    """The reply's code. A script's inner error counts as the reply's own."""
    text = str(reply)
    inner = INNER.match(text)
    if inner and inner["code"] in MEANINGS:
        return inner["code"]
    if text.startswith("ERR max number of clients"):
        return "BUSY"
    return text.partition(" ")[0]


def trouble_of(reply: ReplyError) -> AttemptError:
    """The attempt error an error reply stands for."""
    code = code_of(reply)
    error, again, elsewhere = MEANINGS.get(code, (StoreReplyError, False, False))
    return AttemptError(
        f"it answered {str(reply)!r}", error, again=again, elsewhere=elsewhere, at_once=code == "NOSCRIPT"
    )


def final_error(trouble: AttemptError, shown: str, attempts: int) -> RelierError:
    """The error for the caller: what happened, why, what to do."""
    tried = f" in {attempts} attempts" if attempts > 1 else ""
    what = "gave no answer" if trouble.error is RedisConnectionError else "did not do the call"
    return trouble.error(f"the store at {shown} {what}{tried}: {trouble}; {ADVICE[trouble.error]}")
