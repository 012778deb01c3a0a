"""`celery beat -S relier.celery:Beat`: run `beat_schedule` from the ledger, on any number of nodes.

Every entry is a schedule of the group `celery` in the ledger, with a version and its next intended time. Each node asks
the store which entries are due, by the store's TIME. For a due entry, the node computes the next time with Celery's own
schedule object, builds the message that Celery would send, and calls `fire`. The script accepts only the first node's
call, and stores the task and the next time together. So no leader is needed, and no occurrence runs twice.

    timings.py      the times of crontab, timedelta and solar schedules
    bounds.py       timings with a start, an end, or only one run
    entries.py      converts entries to definitions in the ledger, and back
    firing.py       builds the task of a due entry, and fires it
    scheduler.py    the scheduler class that `celery beat` runs
"""

from relier.celery.beat.bounds import Bounded
from relier.celery.beat.scheduler import BeatScheduler as Beat

__all__ = ["Beat", "Bounded"]
