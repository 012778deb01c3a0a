"""Debian's Prometheus and its promtool: a server of its own for a test, on loopback."""

from __future__ import annotations

import json
import re
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

    def fired(self) -> set[str]:
        """Return the alerts that fire or have fired."""
        found = self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')
        return {sample["metric"]["alertname"] for sample in found}


def hurried(rules: str) -> str:
    """Return rules with short waits: what must last minutes lasts 3 seconds, and a minute's age becomes 2 seconds."""
    rules = re.sub(r"(?m)^( +for:) .+$", r"\1 3s", rules)
    rules = re.sub(r"_seconds > (60|300)\b", "_seconds > 2", rules)
    return re.sub(r"(\[|offset )(5m|15m|1h)", r"\g<1>3m", rules)


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, int], rules: str = "") -> Iterator[Prometheus]:
    """Run a server that scrapes these ports every two seconds, and evaluates the rules every second."""
    jobs = [
        f"  - job_name: relier-{name}\n    static_configs:\n      - targets: ['127.0.0.1:{port}']\n"
        for name, port in targets.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}\n"
        + (f"rule_files: [{folder}/rules.yml]\n" if rules else "")
        + "scrape_configs:\n"
        + "".join(jobs)
    )
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
