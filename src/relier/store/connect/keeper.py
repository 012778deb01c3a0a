"""Keep the embedded server: start it, wait until the last client has left, stop it. See embedded.py.

The keeper runs as a file, by its path, with the standard library alone: `keeper.py <lock> <folder> <socket> <binary>`.
<lock> is the inherited descriptor of keeper.lock. The keeper runs in its own session, so Ctrl-C in a terminal
reaches neither the keeper nor the server. It blocks in two flock calls, and checks its folder every second.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time

START_TIMEOUT = 10.0  # seconds the server may take to open its socket
STOP_TIMEOUT = 10.0  # seconds the server may take to write its data and end
CHECK_EVERY = 1.0  # seconds between two checks of the folder


# The wheel's server uses the C library's allocator, which slows down as the heap fills: a sweep with 100,000 tasks in
# the store cost a third more than with none. A larger cache of freed blocks makes up for that; other C libraries ignore
# this variable.
ALLOCATOR = "glibc.malloc.tcache_count=1000:glibc.malloc.top_pad=16777216"


def main(lock: int, folder: str, socket_path: str, binary: str) -> None:
    server_lock, death, clients = (  # open all now: later this path may lead to another folder
        os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)
        for name in ("server.lock", "server.lock", "clients.lock")
    )
    free = True
    try:
        fcntl.flock(server_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the server runs but lost its keeper: adopt it
        free = False
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    os.set_inheritable(lock, False)
    os.truncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)  # for people who inspect the file
    detach(folder)
    if free:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket_path)
        os.truncate(server_lock, 0)
        os.pwrite(server_lock, b"%d\n" % start(server_lock, folder, socket_path, binary), 0)
    server = int(os.pread(server_lock, 20, 0) or 0)
    os.close(server_lock)
    threading.Thread(target=end_with_server, args=(death,), daemon=True).start()
    if server:
        threading.Thread(target=stop_when_unreachable, args=(clients, folder, socket_path, server), daemon=True).start()
    fcntl.flock(clients, fcntl.LOCK_EX)  # until the last client has left
    stop(socket_path, server)
    threading.Event().wait(STOP_TIMEOUT)  # end_with_server exits as soon as the server is gone


def start(server_lock: int, folder: str, socket_path: str, binary: str) -> int:
    """Start the server and return its pid. The server alone holds server.lock, through the descriptor it inherits."""
    options = {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": folder,
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "logfile": os.path.join(folder, "valkey.log"),
    }
    command = [binary] + [word for name, value in options.items() for word in (f"--{name}", value)]
    env = {"GLIBC_TUNABLES": ALLOCATOR} | os.environ
    started = subprocess.Popen(  # noqa: S603
        command, pass_fds=(server_lock,), cwd=folder, start_new_session=True, env=env
    )
    return started.pid


def detach(folder: str) -> None:
    """Release the starter's pipes, or it would wait for them to close. Errors from here on go to the log."""
    log = os.open(os.path.join(folder, "valkey.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)


def end_with_server(server_lock: int) -> None:
    """Wait for the server's lock, which is free once the server is dead, and exit."""
    fcntl.flock(server_lock, fcntl.LOCK_EX)
    os._exit(0)


def stop_when_unreachable(clients: int, folder: str, socket_path: str, server: int) -> None:
    """Stop a server that new clients cannot find, because its folder or socket was removed.

    Existing clients then lose their connection and join the new clients. Until then old and new clients would use
    different servers without noticing.
    """
    pause = threading.Event()
    until = time.monotonic() + START_TIMEOUT
    while is_reachable(clients, folder, socket_path) and not os.path.exists(socket_path) and time.monotonic() < until:
        pause.wait(CHECK_EVERY / 100)  # the socket may be removed soon after it was opened
    while is_reachable(clients, folder, socket_path) and os.path.exists(socket_path):
        pause.wait(CHECK_EVERY)
    stop(socket_path, server)


def is_reachable(clients: int, folder: str, socket_path: str) -> bool:
    """Return whether `folder` is still the folder we opened, and the socket's folder still exists."""
    try:
        ours = os.path.samestat(os.fstat(clients), os.stat(os.path.join(folder, "clients.lock")))
    except FileNotFoundError:
        return False
    return ours and os.path.isdir(os.path.dirname(socket_path))


def stop(socket_path: str, server: int) -> None:
    """Ask the server to shut down cleanly: it writes and syncs the append-only file.

    Signal it by pid, which is valid while the server holds server.lock. If the folder was removed and created again,
    another server may listen at the socket's path. Not covered: a pid that was written in another container which
    shares the folder and whose keeper was killed.
    """
    if server:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(STOP_TIMEOUT)
        connection.connect(socket_path)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        connection.recv(64)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:5])
