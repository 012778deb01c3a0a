"""The table of actions: everything that an operator can change. Each is one function that returns what it did."""

from __future__ import annotations

from relier.dashboard.actions import control, tasks
from relier.dashboard.actions.action import Action

ACTIONS = {
    action.name: action
    for action in (
        Action("queues/pause", "Pause a queue", {"queue": "Queue"}, control.pause_queue),
        Action("queues/resume", "Resume a queue", {"queue": "Queue"}, control.resume_queue),
        Action("tasks/cancel", "Cancel tasks", tasks.FIELDS, tasks.cancel),
        Action("tasks/replay", "Replay dead tasks", tasks.FIELDS | tasks.FRESH, tasks.replay),
        Action("tasks/discard", "Discard ended tasks", tasks.FIELDS, tasks.discard),
        Action(
            "tasks/edit",
            "Replay a dead task with other arguments",
            {"id": "Id of the task", "arguments": "JSON: [[positional], {name: value}]"} | tasks.FRESH,
            tasks.edit,
        ),
        Action("schedules/run", "Run the task of a schedule once, now", {"name": "Name"}, control.run_schedule),
        Action("schedules/pause", "Pause a schedule", {"name": "Name"}, control.pause_schedule),
        Action("schedules/resume", "Resume a schedule", {"name": "Name"}, control.resume_schedule),
        Action("batches/cancel", "Cancel a batch", {"id": "Id of the batch"}, control.cancel_batch),
        Action("nodes/drain", "Drain a node", {"id": "Id of the node"}, control.drain_node),
        Action("nodes/resume", "Resume a drained node", {"id": "Id of the node"}, control.resume_node),
        Action(
            "limits/set",
            "Set the numbers of a limit",
            {
                "name": "Name or key of the limit",
                "concurrency": "How many tasks may run at once, or none",
                "rate": "How often a task may start, such as 100/min, or none",
                "burst": "How many may start at once under the rate",
            },
            control.set_limit_numbers,
        ),
        Action("limits/clear", "Clear the numbers of a limit", {"name": "Name or key"}, control.clear_limit),
    )
}
