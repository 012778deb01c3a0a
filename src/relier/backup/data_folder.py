"""Find out who uses the folder in which a server keeps its data. Nothing is stopped here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from relier.errors import RedisConnectionError, RelierError, RestoreRefusedError, StoreReplyError
from relier.settings import Settings
from relier.store.connect.address import StoreTarget, target_of
from relier.store.connect.embedded import exclusive_lock, folder_of
from relier.store.connect.one_server import OneServer

PROCESSES = Path("/proc")
PATIENCE = 3.0  # seconds for an embedded server whose last client has just left
SHOWN = 5
ORDER = "stop workers, relays, schedulers and producers, then Sentinels and replicas, then the primary"


def data_folder(settings: Settings, given: str) -> Path:
    """Return the folder to restore: the given one, or that of the embedded store."""
    target = target_of(settings)
    if not given and target.kind != "embedded":
        raise RestoreRefusedError(
            f"the data folder of {target.redacted_url} is not known; name it with --data-dir: it is `dir` in "
            f"redis.conf, such as /data or /var/lib/redis, on the primary's host"
        )
    folder = Path(given).expanduser().absolute() if given else folder_of(target.folder)
    if not folder.is_dir():
        raise RestoreRefusedError(f"there is no folder {folder}; name the server's data folder with --data-dir")
    return folder


@contextmanager
def unused(settings: Settings, folder: Path) -> Iterator[None]:
    """Keep the store stopped while its data is replaced. Raise RestoreRefusedError if anybody uses it."""
    target = target_of(settings)
    if target.kind != "embedded":
        refuse_if_it_answers(settings, target)
    refuse_if_open(folder)
    if not (folder / "clients.lock").exists():  # not the folder of an embedded store
        yield
        return
    with embedded_locks(folder):
        yield


@contextmanager
def embedded_locks(folder: Path) -> Iterator[None]:
    """Hold the locks of an embedded store, so that no process can start its server meanwhile."""
    handles: list[int] = []
    until = time.monotonic() + PATIENCE
    try:
        for name in ("server.lock", "clients.lock"):  # in this order: the keeper needs clients.lock to stop the server
            while (handle := exclusive_lock(folder / name)) is None:
                if time.monotonic() >= until:
                    raise RestoreRefusedError(
                        f"the embedded store in {folder} is in use; stop the workers and all other processes that use "
                        f"it, then run the command again: its server ends with its last client"
                    )
                time.sleep(0.05)
            handles.append(handle)
        yield
    finally:
        for handle in handles:
            os.close(handle)


def refuse_if_it_answers(settings: Settings, target: StoreTarget) -> None:
    """Refuse while the server of the URL runs, and name its clients."""
    try:
        with OneServer.master_of(settings) as server:
            clients: list[str] | None = other_clients(server)
    except RedisConnectionError:
        return  # nothing answers there
    except StoreReplyError:  # an ACL hides the list: the server runs all the same
        clients = None
    except RelierError as error:
        raise RestoreRefusedError(
            f"it is not known whether {target.redacted_url} still runs: {error}; correct the URL"
        ) from error
    if clients:
        shown = ", ".join(clients[:SHOWN]) + (", …" if len(clients) > SHOWN else "")
        raise RestoreRefusedError(
            f"{target.redacted_url} runs and has {len(clients)} other clients ({shown}); {ORDER}; then run the command "
            f"again"
        )
    without = "" if clients is None else ", though no client is connected"
    raise RestoreRefusedError(
        f"{target.redacted_url} still runs{without}; it would overwrite the restored data when "
        f"it stops; stop it, for example with `redis-cli SHUTDOWN NOSAVE`, then run the command again"
    )


def other_clients(server: OneServer) -> list[str]:
    """Return the address and last command of each client but this one, whose last command is this CLIENT LIST."""
    found = []
    for line in server.command("CLIENT", "LIST").decode("utf-8", "replace").splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if not fields.get("cmd", "").startswith("client"):
            found.append(f"{fields.get('addr', '?')} {fields.get('cmd', '')}".strip())
    return found


def refuse_if_open(folder: Path) -> None:
    """Refuse if a server process on this host works in the folder: servers change to their data folder.

    Where there is no /proc, or another user's process cannot be read, only the other checks protect the data.
    """
    for process in PROCESSES.glob("[0-9]*") if PROCESSES.is_dir() else ():
        with suppress(OSError):
            name = (process / "comm").read_text().strip()
            if name.startswith(("redis", "valkey")) and os.path.samefile(process / "cwd", folder):
                raise RestoreRefusedError(
                    f"process {process.name} ({name}) uses {folder}; it would overwrite the restored data when it "
                    f"stops; {ORDER}; then run the command again"
                )
