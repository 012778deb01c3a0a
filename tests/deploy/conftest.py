"""The deploy kit as data: Compose files with their variables filled in, and the command lines of `rl` in them."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.support import ROOT

DEPLOY = ROOT / "deploy"
VARIABLE = re.compile(r"\$\{(\w+)(?::?([-?])([^}]*))?\}")
SECRETS = {
    "RELIER_PASSWORD": "change-me-relier",
    "RELIER_REPLICA_PASSWORD": "change-me-replica",
    "RELIER_SENTINEL_PASSWORD": "change-me-sentinel",
    "RELIER_BACKUP_PASSWORD": "change-me-backup",
    "GRAFANA_PASSWORD": "change-me-grafana",
    "RELIER_DASHBOARD_TOKEN": "change-me-dashboard",
}


def compose(name: str) -> dict[str, Any]:
    """Return a Compose file as `docker compose config` shows it: anchors merged, variables filled in."""
    document = yaml.safe_load((DEPLOY / name).read_text())
    filled: dict[str, Any] = fill(document)
    return filled


def fill(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: fill(each) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each) for each in value]
    return VARIABLE.sub(value_of, value).replace("$$", "$") if isinstance(value, str) else value


def value_of(match: re.Match[str]) -> str:
    name, kind, text = match.groups()
    if kind == "-":
        return str(text)
    assert kind == "?", f"{name} has no default and no message"
    assert len(text) > 10, f"the message of {name} does not say what to set"
    return SECRETS[name]
