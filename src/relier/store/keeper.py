"""The embedded server's keeper: starts it, waits for the last client to leave, stops it. See embedded.py.

Run as a file, by its path, with the standard library alone: `keeper.py <lock> <folder> <socket> <binary>`, where
<lock> is the inherited descriptor of keeper.lock. It goes into a session of its own, so Ctrl-C in a terminal reaches
neither it nor the server, and spends its life blocked in two flock calls and a look at its folder now and then.
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

STARTING = 10.0  # seconds the server may take to open its socket
STOPPING = 10.0  # seconds the server may take to write its data and end
LOOK_AGAIN = 1.0  # seconds between two looks at the folder


# The wheel's server uses the C library's allocator, which slows down as the heap fills: a sweep beside 100,000 tasks
# cost a third more than beside none. A larger cache of freed blocks makes that up; other libraries ignore it.
ALLOCATOR = "glibc.malloc.tcache_count=1000:glibc.malloc.top_pad=16777216"


def main(lock: int, folder: str, socket_path: str, binary: str) -> None:
    server_lock, death, clients = (  # all now: a folder of the same name may be another one later
        os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o600)
        for name in ("server.lock", "server.lock", "clients.lock")
    )
    free = True
    try:
        fcntl.flock(server_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # the server lives and lost its keeper: adopt it
        free = False
    if os.fork():
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    os.set_inheritable(lock, False)
    os.truncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)  # for people who look
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
        threading.Thread(target=stop_out_of_reach, args=(clients, folder, socket_path, server), daemon=True).start()
    fcntl.flock(clients, fcntl.LOCK_EX)  # until the last client has left
    stop(socket_path, server)
    threading.Event().wait(STOPPING)  # end_with_server ends us as soon as the server is gone


def start(server_lock: int, folder: str, socket_path: str, binary: str) -> int:
    """The server holds server.lock through the descriptor it inherits, and is the only one to hold it. Its pid."""
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
    """Let go of the starter's pipes, or it would wait for their end. What goes wrong from here on is in the log."""
    log = os.open(os.path.join(folder, "valkey.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)


def end_with_server(server_lock: int) -> None:
    """The server's death, seen as its lock coming free, is the keeper's end."""
    fcntl.flock(server_lock, fcntl.LOCK_EX)
    os._exit(0)


def stop_out_of_reach(clients: int, folder: str, socket_path: str, server: int) -> None:
    """Stop a server that no newcomer finds, its folder or its socket removed: who is still on it loses the connection
    and goes where the newcomers are. Until then the two sides would talk to different servers and not know."""
    pause = threading.Event()
    until = time.monotonic() + STARTING
    while has_place(clients, folder, socket_path) and not os.path.exists(socket_path) and time.monotonic() < until:
        pause.wait(LOOK_AGAIN / 100)  # soon after it opened somebody may remove it
    while has_place(clients, folder, socket_path) and os.path.exists(socket_path):
        pause.wait(LOOK_AGAIN)
    stop(socket_path, server)


def has_place(clients: int, folder: str, socket_path: str) -> bool:
    """Is this the folder that others find under its name, and is there one for the socket?"""
    try:
        ours = os.path.samestat(os.fstat(clients), os.stat(os.path.join(folder, "clients.lock")))
    except FileNotFoundError:
        return False
    return ours and os.path.isdir(os.path.dirname(socket_path))


def stop(socket_path: str, server: int) -> None:
    """Ask for a clean end: the append-only file is written and synced. By pid, which is the server's own while it holds
    server.lock: at the socket's path another server may listen, where the folder was removed and made anew. Not
    covered: a pid written in another container that shares the folder and whose keeper was killed."""
    if server:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(STOPPING)
        connection.connect(socket_path)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        connection.recv(64)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:5])
