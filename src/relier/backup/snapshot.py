"""Let a server write a snapshot, and fetch it: read its file if this host can, otherwise use replication."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from relier.errors import BackupError, StoreReplyError
from relier.store.connect.one_server import CHUNK, OneServer

SAVE_TIMEOUT = 120.0  # seconds for one BGSAVE
POLL_EVERY = 0.1
HOW_TO_FETCH = (
    "run the backup where the server's data folder can be read, or let this user read it over the connection "
    "(ACL: +sync +psync +replconf); for a managed service, use the provider's own snapshots"
)


class Fetched(NamedTuple):
    """Where a snapshot came from: the server, and whether its file was read or it was sent by replication."""

    server: str
    by: Literal["file", "replication"]


class SnapshotFile(NamedTuple):
    """A server's snapshot file, as far as this host can see it. `mark` changes whenever the file is replaced."""

    path: Path
    mark: tuple[int, int] | None


def replica_of(master: OneServer) -> OneServer | None:
    """Return the replica that is furthest ahead, or None if none is online."""
    lines = [line for name, line in master.info("replication").items() if re.fullmatch(r"slave\d+", name)]
    fields = [dict(part.split("=", 1) for part in line.split(",") if "=" in part) for line in lines]
    online = [one for one in fields if one.get("state") == "online"]
    if not online:
        return None
    best = max(online, key=lambda one: int(one.get("offset", 0)))
    return master.replica(best["ip"], int(best["port"]))


def fetch_snapshot(server: OneServer, write: Callable[[bytes], object]) -> Fetched:
    """Pass a new snapshot of the server to `write`. Raise BackupError if there is no way to get one."""
    before = visible_file(server)
    if before is not None:
        save(server)
        after = mark_of(before.path)
        if after is not None and after != before.mark:
            with before.path.open("rb") as file:
                while data := file.read(CHUNK):
                    write(data)
            return Fetched(str(server.address), "file")
    try:
        server.send_snapshot(write, SAVE_TIMEOUT)
    except StoreReplyError as error:
        raise BackupError(f"the snapshot of {server.address} cannot be read from here: {error}; {HOW_TO_FETCH}") from (
            error
        )
    return Fetched(str(server.address), "replication")


def visible_file(server: OneServer) -> SnapshotFile | None:
    """Return the server's snapshot file, which need not exist yet, or None if this host cannot read its folder."""
    try:
        (_, folder), (_, name) = (server.command("CONFIG", "GET", option) for option in ("dir", "dbfilename"))
    except (StoreReplyError, ValueError):  # an ACL or a managed service hides its configuration
        return None
    path = Path(os.fsdecode(folder)) / os.fsdecode(name)
    if not os.access(path.parent, os.R_OK | os.X_OK) or (path.exists() and not os.access(path, os.R_OK)):
        return None
    return SnapshotFile(path, mark_of(path))


def mark_of(path: Path) -> tuple[int, int] | None:
    """Return what identifies this version of a file, or None if it cannot be read. A server replaces the file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns) if os.access(path, os.R_OK) else None


def save(server: OneServer, seconds: float = SAVE_TIMEOUT) -> None:
    """Let the server write its snapshot file, and wait until it is complete.

    LASTSAVE counts whole seconds, so this first waits until the second of the last save is over. Otherwise a save that
    ends within that second could not be told from the one before it.
    """
    until = time.monotonic() + seconds
    while True:
        last: int = server.command("LASTSAVE")
        if int(server.command("TIME")[0]) > last and start_save(server):
            break
        _pause(server, until, seconds)
    failed = 0
    while int(server.command("LASTSAVE")) <= last:
        failed = failed + 1 if save_failed(server) else 0
        if failed == 2:  # a single failure may be an older one, seen between a rewrite of the AOF and our own save
            raise BackupError(
                f"BGSAVE failed on {server.address}; free disk space or memory there, and see its log; then try again"
            )
        _pause(server, until, seconds)


def _pause(server: OneServer, until: float, seconds: float) -> None:
    if time.monotonic() >= until:
        raise BackupError(
            f"{server.address} did not finish BGSAVE within {seconds:.0f} s; see rdb_bgsave_in_progress in INFO "
            f"persistence and the server's log; if its disk is slow, back up a replica (--replica)"
        )
    time.sleep(POLL_EVERY)


def save_failed(server: OneServer) -> bool:
    """Return whether the last snapshot failed, and no other is being written or waits for a rewrite of the AOF."""
    info = server.info("persistence")
    busy = info.get("rdb_bgsave_in_progress") == "1" or info.get("aof_rewrite_in_progress") == "1"
    return info.get("rdb_last_bgsave_status") == "err" and not busy


def start_save(server: OneServer) -> bool:
    """Start BGSAVE, behind a rewrite of the AOF if one runs. Return False while another snapshot is being written."""
    try:
        server.command("BGSAVE", "SCHEDULE")
    except StoreReplyError as error:
        if "already in progress" in str(error):
            return False
        raise BackupError(f"{error}; allow BGSAVE to this user, or use the provider's own snapshots") from error
    return True
