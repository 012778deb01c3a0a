"""Tools for testing tasks. Nothing here needs a server that was started by hand.

context(…)                              a TaskContext of your own, for calling a task's function
recorded()                              pushes are recorded instead of sent: `pushed.assert_pushed(task, …)`
inline()                                tasks run at push, without a store
store(), run_pending(), arun_pending()  a real embedded store with a virtual clock: delays and retries take no time
kill_after_step(…), kill_before_commit(), lose_lease()   faults for run_pending
open_outbox()                           the rows of an outbox as calls, for tests without pytest
override(provider, fake)                another dependency inside a block

plugin.py      the pytest fixtures; it imports nothing until one of them is used
outbox.py      reads the rows of an outbox as calls, and runs them
contexts.py, recording.py, inlining.py, overrides.py, virtual/   the tools listed above
declared.py    tasks of Django as their authors wrote them
memory.py, storeless.py, calling_thread.py   what these share: attempts that record in memory, pushes that reach no
               store, `def` tasks in the thread of the test
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relier.testing.contexts import FakeClock, OwnContext, context
    from relier.testing.inlining import inline
    from relier.testing.outbox import OutboxKit, SentTask, open_outbox
    from relier.testing.overrides import override
    from relier.testing.recording import PushedCall, RecordedPushes, recorded
    from relier.testing.virtual.faults import Fault, kill_after_step, kill_before_commit, lose_lease
    from relier.testing.virtual.ran import RanAttempt
    from relier.testing.virtual.store import VirtualStore, arun_pending, run_pending, store

_HOMES = {
    "FakeClock": "contexts",
    "OwnContext": "contexts",
    "context": "contexts",
    "inline": "inlining",
    "OutboxKit": "outbox",
    "SentTask": "outbox",
    "open_outbox": "outbox",
    "override": "overrides",
    "RecordedPushes": "recording",
    "PushedCall": "recording",
    "recorded": "recording",
    "Fault": "virtual.faults",
    "kill_after_step": "virtual.faults",
    "kill_before_commit": "virtual.faults",
    "lose_lease": "virtual.faults",
    "RanAttempt": "virtual.ran",
    "VirtualStore": "virtual.store",
    "arun_pending": "virtual.store",
    "run_pending": "virtual.store",
    "store": "virtual.store",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'relier.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"relier.testing.{home}"), name)
    return value


__all__ = [
    "FakeClock",
    "Fault",
    "OutboxKit",
    "OwnContext",
    "PushedCall",
    "RanAttempt",
    "RecordedPushes",
    "SentTask",
    "VirtualStore",
    "arun_pending",
    "context",
    "inline",
    "kill_after_step",
    "kill_before_commit",
    "lose_lease",
    "open_outbox",
    "override",
    "recorded",
    "run_pending",
    "store",
]
