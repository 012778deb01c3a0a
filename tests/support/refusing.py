"""A proxy that answers script calls with an error reply, for as long as a test wants."""

from __future__ import annotations

import hiredis

from relier.store.replies import MEANINGS, Judgement
from tests.support.wire import Proxy

# One reply per code, as servers word them.
REPLIES = {
    "NOSCRIPT": "NOSCRIPT No matching script.",
    "BUSY": "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNKILLABLE": "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "NOMASTERLINK": "NOMASTERLINK Can't SYNC while not connected with my master",
    "INPROG": "INPROG Failover already in progress",
    "NOQUORUM": "NOQUORUM 1 usable Sentinels.",
    "NOGOODSLAVE": "NOGOODSLAVE No suitable replica to promote",
    "NOGOODPRIMARY": "NOGOODPRIMARY Primary does not support FAILOVER command",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "ASK": "ASK 3999 127.0.0.1:6381",
    "MOVED": "MOVED 3999 127.0.0.1:6381",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "LOADING": "LOADING Valkey is loading the dataset in memory",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "REDIRECT": "REDIRECT 127.0.0.1:6381",
    "UNBLOCKED": "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF": "MISCONF Errors writing to the AOF file: No space left on device",
    "NOAUTH": "NOAUTH Authentication required.",
    "WRONGPASS": "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM": "NOPERM this user has no permissions to run the 'evalsha' command",
    "DENIED": "DENIED Running in protected mode because protected mode is enabled",
    "NOPROTO": "NOPROTO unsupported protocol version",
    "ERR": "ERR syntax error",
    "WRONGTYPE": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "CROSSSLOT": "CROSSSLOT Keys in request don't hash to the same slot",
    "EXECABORT": "EXECABORT Transaction discarded because of previous errors.",
    "NOTBUSY": "NOTBUSY No scripts in execution right now.",
    "BUSYKEY": "BUSYKEY Target key name already exists.",
    "BUSYGROUP": "BUSYGROUP Consumer Group name already exists",
    "NOGROUP": "NOGROUP No such consumer group",
    "INVALIDOBJ": "INVALIDOBJ Corrupted HLL object detected",
    "IOERR": "IOERR error or timeout reading to target instance",
    "max clients": "ERR max number of clients reached",
    "killed": "ERR Error running script: Script killed by user with SCRIPT KILL",
    "acl in script": "ERR ACL failure in script: User default has no permissions to run the 'set' command script: on",
    "acl in 7.0": "ERR The user executing the script can't run this command or subcommand script: 7135",
    "long before AUTH": "ERR Protocol error: unauthenticated multibulk length",
    "large before AUTH": "ERR Protocol error: unauthenticated bulk length",
    "inner": "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good",
}
FINAL = [code for code, (judgement, _) in MEANINGS.items() if judgement is Judgement.FINAL]
PASSING = [code for code in REPLIES if code not in FINAL and code != "NOSCRIPT"]


class Refusing:
    """Answers with `reply` in place of a server. Commands other than scripts pass."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.refused = 0
        proxy.disturb = self._disturb
        self._reply = b""
        self._only = b"EVALSHA"

    def begin(self, code: str, only: str = "") -> None:
        """Answer with the reply of `code`; `only`: to the script of this digest."""
        self._only = only.encode() or b"EVALSHA"
        self._reply = f"-{REPLIES[code]}\r\n".encode()

    def end(self) -> None:
        self._reply = b""

    def _disturb(self, request: bytes) -> bytes | None:
        if not self._reply or self._only not in request:
            return None
        self.refused += 1
        reader = hiredis.Reader()
        reader.feed(request)
        replies = b""
        while (command := reader.gets()) is not False:
            loaded = command[0] == b"SCRIPT" and b"NOSCRIPT" in self._reply
            replies += b"+OK\r\n" if loaded else self._reply
        return replies
