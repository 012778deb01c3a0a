"""The Helm chart: every object that it makes is complete, and its command lines are valid."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.command_lines import check_command_line
from tests.deploy.conftest import DEPLOY
from tests.support.helm import Chart

CHART = DEPLOY / "helm" / "relier"
SHUTDOWN = 120


def rendered(kind: str = "none") -> list[dict[str, Any]]:
    """Return the objects of a chart with everything switched on."""
    chart = Chart(CHART)
    for part in ("scheduler", "relay", "dashboard", "backup"):
        chart.values[part]["enabled"] = True
    chart.values["shutdownTimeout"] = SHUTDOWN
    chart.values["workers"][0]["autoscaling"]["kind"] = kind
    chart.values["workers"].append(chart.values["workers"][0] | {"name": "mail", "queues": ["mail", "bulk"]})
    return chart.documents()


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def test_the_defaults_make_workers_a_scheduler_and_a_policy() -> None:
    made = Chart(CHART).documents()
    assert sorted((each["kind"], each["metadata"]["name"]) for each in made) == [
        ("Deployment", "shop-scheduler"),
        ("Deployment", "shop-worker-default"),
        ("NetworkPolicy", "shop-relier"),
        ("PodDisruptionBudget", "shop-worker-default"),
    ]


def test_every_pod_is_unprivileged_and_has_time_to_stop() -> None:
    deployments = of_kind(rendered(), "Deployment")
    assert len(deployments) == 6
    for name, deployment in deployments.items():
        selector = deployment["spec"]["selector"]["matchLabels"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items(), name
        pod = deployment["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == SHUTDOWN + 15
        assert pod["securityContext"]["runAsNonRoot"]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        values = {each["name"]: each["value"] for each in container["env"]}
        assert values["RELIER_GRACEFUL_SHUTDOWN_TIMEOUT"] == str(SHUTDOWN)
        assert container["image"] == "relier:1.0.0a1"
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_backups_may_have_credentials_of_their_own() -> None:
    chart = Chart(CHART)
    chart.values["backup"]["enabled"] = True
    for given, used in (("", "relier"), ("relier-backup", "relier-backup")):
        chart.values["backup"]["secret"] = given
        backup = of_kind(chart.documents(), "Deployment")["shop-backup"]["spec"]["template"]["spec"]["containers"][0]
        assert backup["envFrom"] == [{"secretRef": {"name": used}}]


def test_every_command_line_is_valid() -> None:
    for deployment in of_kind(rendered(), "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        check_command_line(container["args"])
    worker = of_kind(rendered(), "Deployment")["shop-worker-mail"]["spec"]["template"]["spec"]["containers"][0]
    assert worker["args"][:4] == ["worker", "tasks", "--queues", "mail,bulk"]
    (drain,) = (worker["lifecycle"]["preStop"]["exec"]["command"][2],)
    check_command_line(drain.removeprefix("rl ").partition(" ||")[0].replace('"', "").split())


@pytest.mark.parametrize(("kind", "made"), [("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")])
def test_replicas_follow_the_load(kind: str, made: str) -> None:
    documents = rendered(kind)
    scaler = of_kind(documents, made)["shop-worker-default"]
    target = of_kind(documents, "Deployment")[scaler["spec"]["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"], "two masters would fight over the number"
    if kind == "keda":
        (trigger,) = scaler["spec"]["triggers"]
        assert trigger["metadata"]["threshold"] == "30"
        assert 'queue="default"' in trigger["metadata"]["query"]


def test_a_budget_and_a_policy_select_the_pods() -> None:
    documents = rendered()
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind(documents, "Deployment").values()]
    for budget in of_kind(documents, "PodDisruptionBudget").values():
        assert sum(budget["spec"]["selector"]["matchLabels"].items() <= labels.items() for labels in pods) == 1
    policy = of_kind(documents, "NetworkPolicy")["shop-relier"]["spec"]
    assert all(policy["podSelector"]["matchLabels"].items() <= labels.items() for labels in pods)
    assert policy["ingress"] == []
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert {53, 6379, 26379} <= ports
