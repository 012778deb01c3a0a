"""The alerts and dashboards of deploy/: they name only series that exist, each alert fires, and each has a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from relier.monitoring.meter import Meter
from relier.outbox.relay.metrics import RelayCollector
from relier.outbox.relay.relay import Relay
from relier.outbox.sqlalchemy.engines import database_of
from tests.monitoring.test_metrics import has
from tests.support.fleet import Fleet, wait_until
from tests.support.probing import metrics_of, wait_for
from tests.support.prometheus import promtool
from tests.support.servers import free_port

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy/prometheus/relier.rules.yml"
UNIT_TESTS = ROOT / "deploy/prometheus/relier.test.yml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
RUNBOOKS = ROOT / "docs/how-to/runbooks.md"

ALERT = re.compile(r"- alert: (\w+)\n +expr: (.+)")


def alerts() -> dict[str, str]:
    """Return alert -> its expression."""
    return dict(ALERT.findall(RULES.read_text()))


def expressions() -> Iterator[tuple[str, str]]:
    """Yield dashboard and query, for all queries of all dashboards."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            yield from ((f"{file.stem}: {panel['title']}", target["expr"]) for target in panel["targets"])


def series_in(expression: str) -> set[str]:
    return set(re.findall(r"\brl_\w+", expression))


def names_on(page: str) -> set[str]:
    """Return the names that queries may use: those of samples, also of families without any so far."""
    ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
    families = text_string_to_metric_families(page)
    return {one.name.removesuffix("_total") + end for one in families for end in ends[one.type]}


def relay_page() -> str:
    meter = Meter()
    relay = Relay(database_of("sqlite://"), [])
    try:
        meter.collectors.append(RelayCollector(relay))
        return meter.text().decode()
    finally:
        relay.close()


def test_promtool_accepts_the_rules_and_every_alert_fires() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", UNIT_TESTS.name]):
        told = subprocess.run([promtool(), *command], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stdout + told.stderr
    provoked = re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", UNIT_TESTS.read_text())
    assert sorted(provoked) == sorted(alerts()), "each alert fires in a test of its own"


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert headings == list(alerts())
    linked = re.findall(r"runbook: docs/how-to/runbooks\.md#(\w+)", RULES.read_text())
    assert linked == [name.lower() for name in headings]


def test_alerts_and_dashboards_name_only_series_that_exist(fleet: Fleet) -> None:
    exporter, worker = free_port(), free_port()
    fleet.start("exporter", "--metrics-port", str(exporter))
    fleet.worker("--processes", "1", "--metrics-port", str(worker))
    wait_until(has(worker, "rl_ready", 1))
    wait_for(exporter, "/readyz")
    served = names_on(metrics_of(exporter)) | names_on(metrics_of(worker)) | names_on(relay_page())
    depths = {"rl_outbox_depth", "rl_outbox_oldest_age_seconds", "rl_outbox_dead_rows"}  # after the first count
    used = {name: series_in(expression) for name, expression in [*alerts().items(), *expressions()]}
    unknown = {name: names - served - depths for name, names in used.items()}
    assert not {name: names for name, names in unknown.items() if names}
