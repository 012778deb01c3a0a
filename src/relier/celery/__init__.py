"""Keep the tasks of a Celery app in the ledger: `from relier.celery import install; install(app, adopt=True)`.

The path of a task:

1. `.delay()` builds Celery's message. The replacement producer turns it into a record (sending/publish.py,
   messages.py).
2. In a Celery worker, the ledger thread claims the record (working/bootsteps.py starts it, engines/worker.py runs it).
3. The claimed attempt becomes a job for Celery's main thread (working/runner.py, working/jobs.py).
4. The main thread wraps the job in a Celery request for the pool (working/strategy.py, working/request.py).
5. In the pool, Celery's tracer runs the body (pool/adopted_child.py). sending/collect.py keeps tasks sent after it.
6. The report of the pool process becomes the outcome of the job (working/report.py, working/request.py).
7. The ledger thread settles the attempt: result, follow-ups and the part of a chord (canvas/) commit together.

The other modules, in reading order:

- install.py           replaces the parts of an app that send, join and run tasks
- adoption.py          decides which tasks are adopted, and submits them
- options.py           reads the options of adopted tasks
- internal.py          runs Relier's own tasks, such as the join of a chord, in the pool
- beat/                runs `beat_schedule` from the ledger, on any number of nodes
- outbox.py            sends tasks as part of a database transaction
- return_to_broker.py  sends waiting tasks back to the broker, for a return to plain Celery
- operational.py       makes errors of an unavailable ledger catchable as kombu's `OperationalError`
- imports.py           imports the app's tasks in an isolated process
- compat.py            holds every private attribute of Celery that Relier uses
"""

from relier.celery.beat import Beat
from relier.celery.install import install

__all__ = ["Beat", "install"]
