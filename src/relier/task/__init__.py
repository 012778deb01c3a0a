"""Tasks: functions that can be pushed.

decorator.py     `@rl_task`, and the tasks that it creates
pushable.py      how the calls of a task are pushed
other_queues.py  names our methods and options in errors about those of other task queues
"""

from relier.task.decorator import AsyncRlTask, Migration, RlTask, SyncRlTask, TaskDecorator, rl_task
from relier.task.pushable import Pushable

__all__ = ["AsyncRlTask", "Migration", "Pushable", "RlTask", "SyncRlTask", "TaskDecorator", "rl_task"]
