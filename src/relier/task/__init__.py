"""Tasks: functions that can be pushed.

decorator.py  `@rl_task` and what it makes of a function
pushable.py   how the calls of a task are pushed
"""

from relier.task.decorator import Migration, RlTask, TaskDecorator, rl_task
from relier.task.pushable import Pushable

__all__ = ["Migration", "Pushable", "RlTask", "TaskDecorator", "rl_task"]
