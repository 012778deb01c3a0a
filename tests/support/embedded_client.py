"""A process that uses a store. It reads commands from stdin, line by line, and answers on stdout.

count <key> <nonce>   run the script, print the answer          pid    the server's process id
fork                  let a forked child do the rest; the parent ends
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from relier.settings import Settings
from relier.store import Scripts, SyncStore
from tests.support.toy_scripts import count


def main(url: str) -> None:
    store = SyncStore(Settings(redis_url=url), Scripts(Path(__file__).parent / "toy_lua", {}))
    for line in iter(sys.stdin.readline, ""):
        match line.split():
            case ["count", key, nonce]:
                print(store.run(count(key, nonce)), flush=True)
            case ["pid"]:
                told = store.command("INFO", "server", retry=True).decode()
                print(told.partition("process_id:")[2].split()[0], flush=True)
            case ["fork"]:
                child = os.fork()
                if child:
                    os._exit(0)
                print(os.getpid(), flush=True)
            case ["close"]:
                store.close()
                print("closed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
