"""The app of the Celery engines: a worker is `celery -A tests.support.conformance.celery_app worker …`.

The environment names its tasks and its broker. The tasks are imported after `install`, as in a user's project.
"""

from __future__ import annotations

import os

from celery import Celery

from relier import registry
from relier.celery import install
from tests.support.conformance.signals import block_until_noted, note


def broker_url() -> str:
    """Return the broker's URL: by default, a database of the ledger's own server that no other Celery test uses."""
    told = os.environ.get("CONFORMANCE_BROKER")
    if told:
        return told
    store = os.environ["RELIER_REDIS_URL"]
    return (
        store.replace("unix://", "redis+socket://") + "?virtual_host=15" if store.startswith("unix") else f"{store}/15"
    )


app = Celery("conformance", broker=broker_url())
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=True)
install(app, adopt=["conformance.*"])


@app.task(name="conformance.double")
def double(number: int) -> int:
    return 2 * number


@app.task(name="conformance.fail_by_celery")
def fail_by_celery() -> None:
    raise ValueError("as asked")


@app.task(name="plain.note")
def plain_note(folder: str, text: str) -> None:
    """A task that is not adopted, and arrives through the broker."""
    note(folder, "plain", text)


@app.task(name="conformance.once_a_minute", rate_limit="1/m")
def once_a_minute(folder: str) -> None:
    note(folder, "runs", "limited")


@app.task(name="conformance.wait_by_celery")
def wait_by_celery(folder: str) -> str:
    note(folder, "runs", "celery")
    block_until_noted(folder, "go")
    return "went"


@app.task(name="conformance.fork_by_celery")
def fork_by_celery(folder: str) -> bool:
    """Fork, and return in both processes: True in the process that forked."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    note(folder, "forked")
    return pid > 0


registry.load(os.environ.get("CONFORMANCE_MODULES", "tests.support.conformance.tasks").split())
