"""A module whose import is slow, as in large applications: in isolated processes, or where a test asks for it."""

from __future__ import annotations

import os
import sys
import time

from relier import TaskContext, rl_task
from tests.support.jobs.common import note

if sys.modules["__main__"].__spec__ and sys.modules["__main__"].__spec__.name == "relier.run.isolated.child":
    time.sleep(float(os.environ.get("FLEET_ISOLATED_IMPORT_S", "3")))
time.sleep(float(os.environ.get("FLEET_IMPORT_S", "0")))


@rl_task(isolate=True, hard_timeout=2)
def brief(ctx: TaskContext) -> int:
    note("begin", ctx)
    return ctx.attempt
