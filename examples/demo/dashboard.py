"""`make demo-dashboard`: the same demo with two dashboards open, which show each death, revival and end.

Open both addresses, side by side if you like. The pages change by themselves. With `--no-wait`, the demo starts at once
and ends with its last task.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from relier import Client, use_client
from relier.errors import RelierError

from .__main__ import SIGNALS, Demo, DemoError, environment_of, interrupted, settings_in, wait_for_the_store
from .crew import EXAMPLES, Crew
from .view import View

PORTS = (8642, 8643)
READ_S = 12


def start(port: int, environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `rl dashboard`, and wait until it listens."""
    command = [sys.executable, "-m", "relier.cli", "dashboard", "--port", str(port)]
    with (folder / f"dashboard-{port}.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=log, stderr=log, process_group=0)
    until = time.monotonic() + 20
    while running.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return running
        time.sleep(0.1)
    running.kill()
    raise DemoError(f"the dashboard does not listen on port {port}: {(folder / f'dashboard-{port}.log').read_text()}")


def main(wait: bool) -> int:
    for number in SIGNALS:
        signal.signal(number, interrupted)
    with tempfile.TemporaryDirectory(prefix="relier-demo-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        settings = settings_in(folder)
        client = Client(settings)
        use_client(client)
        client.open()
        environment = environment_of(settings)
        crew, view = Crew(folder, environment), View()
        demo = Demo(client, crew, view)
        dashboards: list[subprocess.Popen[bytes]] = []
        try:
            dashboards += [start(port, environment, folder) for port in PORTS]
            addresses = " and ".join(f"http://127.0.0.1:{port}/" for port in PORTS)
            view.console.print(f"Open {addresses}: two dashboards of the same namespace.")
            if wait:
                view.console.print(f"Workers start, and begin to die, in {READ_S} seconds.")
                time.sleep(READ_S)
            with view:
                demo.run()
            if wait:
                view.console.print("Everything has ended. The dashboards stay until Ctrl-C.")
                signal.pause()
        except KeyboardInterrupt:
            pass
        except (DemoError, RelierError) as error:
            view.console.print(f"\nthe demo failed: {error}", style="bold red")
            return 1
        finally:
            demo.producer.stop()
            crew.end()
            for each in dashboards:
                each.terminate()
                each.wait(10)
            client.close()
            wait_for_the_store(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(wait="--no-wait" not in sys.argv))
