"""Start the shop: the web application, a worker and a relay. Ctrl-C ends all three."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent
PORT = os.environ.get("PORT", "8321")
PYTHON = [sys.executable, "-m"]
COMMANDS = (
    [*PYTHON, "uvicorn", "shop.web:app", "--port", PORT],
    [*PYTHON, "relier.cli", "worker", "shop.tasks"],
    [*PYTHON, "relier.cli", "outbox", "relay", "--database", "sqlite:///shop.db"],
)


def main() -> None:
    folder = Path(os.environ.get("SHOP_FOLDER", HERE))
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH", ""))))
    env = os.environ | {"PYTHONPATH": path}
    prepare = [sys.executable, "-c", "from shop.database import create_tables; create_tables()"]
    subprocess.run(prepare, cwd=folder, env=env, check=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    running = [subprocess.Popen(command, cwd=folder, env=env, start_new_session=True) for command in COMMANDS]
    print(f"The shop is open: http://127.0.0.1:{PORT}", flush=True)
    while not ended.wait(0.5) and all(process.poll() is None for process in running):
        pass
    for process in running:
        process.terminate()
    codes = [process.wait() for process in running]
    if not ended.is_set():
        raise SystemExit(f"a part of the shop ended by itself: {codes}; see its output above")


if __name__ == "__main__":
    main()
