"""A RabbitMQ for tests: Debian's package, one node in a temporary folder on loopback, with its own epmd, so that it
does not meet other nodes. As root, it runs as the package's user.

RELIER_TEST_AMQP_URL names a node that already runs. That one is neither stopped nor started.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import kombu

from tests.support.servers import free_port, skip_without, wait_until

URL = "RELIER_TEST_AMQP_URL"
SERVER = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "rabbitmq-server",
)  # Debian's wrapper wants the system's folders
START_S = 60.0
USER = "rabbitmq"


def require_rabbitmq() -> None:
    """Skip the test if RabbitMQ is not installed. In CI it must be, unless it could not be installed."""
    if os.environ.get(URL) or binary() is not None:
        return
    skip_without(
        "rabbitmq", f"no rabbitmq-server here: apt-get install rabbitmq-server, or name one that runs in {URL}"
    )


def binary() -> str | None:
    return next((found for name in SERVER if (found := shutil.which(name))), None)


class Rabbit:
    """One node. `own`: tests may stop and start it."""

    def __init__(self) -> None:
        require_rabbitmq()
        self.own = not os.environ.get(URL)
        self.port = free_port()
        self.url = os.environ.get(URL) or f"amqp://guest:guest@127.0.0.1:{self.port}//"
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if self.own:
            self.folder = Path(tempfile.mkdtemp(prefix="rabbit"))
            (self.folder / "enabled_plugins").write_text("[].\n")
            (self.folder / "env.conf").write_text("")
            self._environment = self._make_environment()
            self._user = USER if os.getuid() == 0 and _exists(USER) else None
            if self._user is not None:
                shutil.chown(self.folder, self._user)

    def _make_environment(self) -> dict[str, str]:
        ours = {
            "NODENAME": f"relier{self.port}@localhost",
            "NODE_IP_ADDRESS": "127.0.0.1",
            "NODE_PORT": str(self.port),
            "DIST_PORT": str(free_port()),
            "MNESIA_BASE": str(self.folder / "mnesia"),
            "LOG_BASE": str(self.folder / "log"),
            "LOGS": "-",
            "PID_FILE": str(self.folder / "pid"),
            "ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "CONF_ENV_FILE": str(self.folder / "env.conf"),
            "CONFIG_FILE": str(self.folder / "rabbitmq"),
            "SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        erlang = {"ERL_EPMD_PORT": str(free_port()), "ERL_EPMD_ADDRESS": "127.0.0.1", "HOME": str(self.folder)}
        return {"PATH": os.environ["PATH"]} | erlang | {f"RABBITMQ_{name}": value for name, value in ours.items()}

    def start(self) -> Rabbit:
        if self.own:
            if self._epmd is None:
                self._epmd = self._run("epmd", "-port", self._environment["ERL_EPMD_PORT"])
            found = binary()
            assert found is not None
            self._process = self._run(found)
        wait_until(self.answers, START_S, "RabbitMQ")
        return self

    def stop(self) -> None:
        """Stop the node: connections are refused until it is started again."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def end(self) -> None:
        self.stop()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait(10)
        if self.own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"RabbitMQ ended: {(self.folder / 'out').read_text(errors='replace')[-3000:]}")
        try:
            with kombu.Connection(self.url, connect_timeout=2) as connection:
                connection.connect()
        except OSError:
            return False
        return True

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "out").open("ab") as out:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
            )


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
