"""The table of pages: a path, a template, and a function that reads the data. The API serves the same data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relier.dashboard.action_log import actions
from relier.dashboard.query import Query
from relier.dashboard.reads.batches import batch, batches
from relier.dashboard.reads.dead_letters import dead_letters
from relier.dashboard.reads.events import events
from relier.dashboard.reads.limits import limits
from relier.dashboard.reads.nodes import nodes
from relier.dashboard.reads.outbox import outbox
from relier.dashboard.reads.overview import overview
from relier.dashboard.reads.queues import queues
from relier.dashboard.reads.schedules import schedule, schedules
from relier.dashboard.reads.task import task
from relier.dashboard.reads.tasks import tasks
from relier.dashboard.session import DashboardSession

Read = Callable[[DashboardSession, Query], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """One page. `parameters`: name -> meaning, for the API's description. `under`: the page in the menu above it.
    `topics`: the events after which an open page is read again."""

    path: str
    name: str
    title: str
    read: Read
    parameters: dict[str, str]
    under: str = ""
    topics: str = "tasks,batches,schedules,cluster"

    @property
    def template(self) -> str:
        return f"{self.name}.html"


FILTER = {"q": "Only those whose name contains this text"}
CURSOR = {"cursor": "Continue a list at this cursor"}
TIMES = {
    "since": "Only tasks that changed at this time or later, such as 2026-11-19T14:05Z",
    "until": "Only tasks that changed at this time or earlier",
}
TASK_FILTER = {
    "state": "running, queued, scheduled, dead, cancelled or done",
    "queue": "Only tasks in this queue",
    "name": "Only tasks of this name, or whose name ends with a dot and this",
    "reason": "Only tasks that ended for this reason",
    "id": "Only tasks whose id begins with this",
}

PAGES = (
    DashboardPage("/", "overview", "Overview", overview, {}),
    DashboardPage("/queues", "queues", "Queues", queues, FILTER, topics="tasks,cluster"),
    DashboardPage("/tasks", "tasks", "Tasks", tasks, TASK_FILTER | TIMES | CURSOR, topics="tasks"),
    DashboardPage("/task", "task", "Task", task, {"id": "Id of the task"}, "tasks", topics="tasks"),
    DashboardPage(
        "/dead",
        "dead_letters",
        "Dead letters",
        dead_letters,
        {"reason": TASK_FILTER["reason"], "name": TASK_FILTER["name"]} | TIMES | CURSOR,
        topics="tasks",
    ),
    DashboardPage("/schedules", "schedules", "Schedules", schedules, FILTER, topics="schedules"),
    DashboardPage("/schedule", "schedule", "Schedule", schedule, {"name": "Name"}, "schedules", topics="schedules"),
    DashboardPage("/batches", "batches", "Batches", batches, CURSOR, topics="batches,tasks"),
    DashboardPage("/batch", "batch", "Batch", batch, {"id": "Id of the batch"}, "batches", topics="batches,tasks"),
    DashboardPage("/nodes", "nodes", "Nodes", nodes, FILTER, topics="cluster,tasks"),
    DashboardPage("/limits", "limits", "Limits", limits, FILTER, topics="tasks,cluster"),
    DashboardPage("/outbox", "outbox", "Outbox", outbox, {}, topics="cluster"),
    DashboardPage(
        "/events",
        "events",
        "Events",
        events,
        {"topic": "tasks, batches, schedules or cluster", "name": "Pattern", "queue": "Queue", "id": "Prefix"},
    ),
    DashboardPage("/actions", "actions", "Actions", actions, {}, topics="tasks,batches,schedules,cluster"),
)
MENU = tuple(page for page in PAGES if not page.under)
