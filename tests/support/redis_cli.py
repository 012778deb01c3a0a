"""As much of redis-cli as scripts/redis/backup.sh uses: no wheel brings the real one.

python -m tests.support.redis_cli -h HOST -p PORT [--user USER] COMMAND… | --rdb FILE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from relier.errors import StoreReplyError
from relier.settings import Settings
from relier.store.connect.address import Address
from relier.store.connect.one_server import OneServer


def main(words: list[str]) -> None:
    given = {}
    while words[0] in {"-h", "-p", "--user"}:
        given[words[0]], words = words[1], words[2:]
    password = os.environ.get("REDISCLI_AUTH")
    address = Address(given["-h"], int(given["-p"]), user=given.get("--user"), password=password)
    server = OneServer(Settings(), address)
    if words[0] == "--rdb":
        with Path(words[1]).open("wb") as file:
            server.send_snapshot(file.write, 30)
        return
    try:
        reply = server.command(*words)
    except StoreReplyError as error:
        print(f"(error) {error}")  # and exit with 0, as redis-cli does
    else:
        print(reply.decode() if isinstance(reply, bytes) else reply)


if __name__ == "__main__":
    main(sys.argv[1:])
