"""What `rl` looks like in a terminal of 80 columns, and what changes in a pipe."""

from __future__ import annotations

import pytest

from relier.settings import Settings
from tests.support.cli_desk import Desk, Run, RunJson, failure
from tests.support.terminals import in_terminal, unstyled

LONG_NAME = "shop.billing.invoices.send_monthly_invoice"
LONG_REASON = "PaymentProviderUnavailableError"


@pytest.fixture
def where(settings: Settings) -> list[str]:
    return ["--url", settings.redis_url, "--namespace", settings.namespace]


@pytest.fixture
def busy_desk(desk: Desk) -> dict[str, str]:
    """Create a task in each state, some with long names, reasons and messages. Return state or kind -> id."""
    ids = desk.one_of_each()
    desk.join(host="a-host-with-a-rather-long-name", pid=123456, queues=["default", "mail", "reports"], concurrency=100)
    detail = failure("the provider answered 503 Service Unavailable three times in a row")
    ids["long"] = desk.dead(LONG_REASON, detail, name=LONG_NAME, queue="billing")
    ids["retry"] = desk.start(name=LONG_NAME, queue="a-queue-with-a-long-name").task_id
    return ids


@pytest.mark.parametrize("command", ["tasks", "dlq", "workers", "queues", "tasks inflight", "tasks top", "config"])
def test_no_line_is_longer_than_the_terminal(busy_desk: dict[str, str], where: list[str], command: str) -> None:
    screen = unstyled(in_terminal([*command.split(), *where]))
    assert [line for line in screen.splitlines() if len(line) > 80] == []
    assert "Traceback" not in screen


def cells(screen: str, task_id: str) -> dict[str, str]:
    """Return header -> cell of one task's row. A cell that continues on the next line is joined."""
    headers, *lines = unstyled(screen).splitlines()
    starts = {header: headers.index(header) for header in headers.split()}
    first = next(n for n, line in enumerate(lines) if task_id.startswith(line.split()[0]))
    more = next((n for n in range(first + 1, len(lines)) if not lines[n].startswith("  ")), len(lines))
    ends = [*sorted(starts.values())[1:], 80]
    return {
        header: "".join(line[start:end].strip() for line in lines[first:more])
        for (header, start), end in zip(starts.items(), ends, strict=True)
    }


def test_names_and_states_are_whole(busy_desk: dict[str, str], where: list[str]) -> None:
    screen = in_terminal(["tasks", *where])
    for state in ("running", "queued", "scheduled", "dead", "cancelled", "done"):
        row = cells(screen, busy_desk[state])
        assert (row["NAME"], row["STATE"]) == ("shop.charge", state)
    assert cells(screen, busy_desk["long"])["NAME"] == LONG_NAME
    assert cells(screen, busy_desk["scheduled"])["WHEN"] == "in 59 min"
    assert cells(screen, busy_desk["dead"])["WHEN"].endswith(("now", "s ago"))
    row = cells(in_terminal(["dlq", *where]), busy_desk["long"])
    assert (row["NAME"], row["REASON"]) == (LONG_NAME, LONG_REASON)


def test_what_a_list_shows_can_be_typed(busy_desk: dict[str, str], where: list[str], run_json: RunJson) -> None:
    lines = unstyled(in_terminal(["dlq", *where])).splitlines()
    shown = [line.split()[0] for line in lines if line.startswith(busy_desk["dead"][:6])]
    assert all(18 <= len(prefix) < 32 for prefix in shown)
    assert {run_json("dlq", "show", prefix)["id"] for prefix in shown} == {busy_desk["long"], busy_desk["dead"]}


def test_colours_need_a_terminal(busy_desk: dict[str, str], where: list[str], run: Run) -> None:
    assert "\x1b[31mdead" in in_terminal(["tasks", *where])
    assert "\x1b[31m" not in in_terminal(["tasks", *where], NO_COLOR="1")
    assert "\x1b[32m✓" in in_terminal(["config", "validate", *where])
    assert "\x1b[32m" not in in_terminal(["config", "validate", *where], NO_COLOR="1")
    assert "\x1b" not in run("tasks").stdout


def test_sentences_break_between_words(busy_desk: dict[str, str], where: list[str], run: Run) -> None:
    screen = unstyled(in_terminal(["why", busy_desk["dead"], *where]))
    assert max(map(len, screen.splitlines())) <= 80
    assert " ".join(screen.split()).startswith("Accepted ")
    assert "durability memory." in " ".join(screen.split())
    assert max(map(len, run("why", busy_desk["dead"]).stdout.splitlines())) > 80


def test_a_pipe_gets_everything(busy_desk: dict[str, str], run: Run) -> None:
    shown = run("dlq").stdout
    assert busy_desk["long"] in shown
    assert "three times in a row" in shown
    assert "ATTEMPT" in shown
