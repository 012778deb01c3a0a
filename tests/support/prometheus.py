"""Debian's Prometheus and its promtool: a server of its own for a test, on loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers import free_port, skip_without, wait_until


def promtool() -> str:
    """Return the path of promtool, or skip the test."""
    return _found("promtool")


def _found(binary: str) -> str:
    found = shutil.which(binary)
    if found is None:
        skip_without("prometheus", f"no {binary} here: .ci/install prometheus promtool prometheus")
    assert found is not None
    return found


class Prometheus:
    """A server that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression, now."""
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{asked}", timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        result: list[dict[str, Any]] = found["data"]["result"]
        return result


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Run a server that scrapes these ports once a second."""
    jobs = [
        f"  - job_name: relier-{name}\n    static_configs:\n      - targets: ['127.0.0.1:{port}']\n"
        for name, port in targets.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}\nscrape_configs:\n" + "".join(jobs))
    port = free_port()
    command = [
        _found("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            server = Prometheus(port)
            wait_until(server.answers, 30, "Prometheus")
            yield server
        finally:
            process.terminate()
            process.wait(20)
