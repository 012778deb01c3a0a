"""`rl worker`, `rl resurrector` and `rl dev`: the commands that stay."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click

from relier.cli.long_running import finite, settings_for, start_logging, stays
from relier.cli.session import said
from relier.engines.process import asyncio_run, flush, run_worker
from relier.engines.supervisor import Supervisor
from relier.engines.worker import WorkerOptions, every_queue
from relier.rescue.phoenix import Phoenix
from relier.settings import MOST_AT_ONCE, Settings
from relier.stop_signals import stop_signals
from relier.submit.client import Client, place_of


@click.command()
@click.argument("modules", nargs=-1, required=True)
@click.option(
    "--queues", "-q", multiple=True, metavar="A,B", help="Queues, in order of preference.  [default: default]"
)
@click.option("--queue", multiple=True, metavar="NAME", help="A queue by its exact name, also one with a comma.")
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, MOST_AT_ONCE),
    help="Tasks at once.  [default: RELIER_CONCURRENCY, 100]",
)
@click.option("--processes", "-p", type=click.IntRange(1), help="So many processes under a supervisor.")
@click.option("--isolated", type=click.IntRange(1), default=4, show_default=True, help="Isolated processes at once.")
@click.option("--max-tasks", type=click.IntRange(1), help="Start over in a fresh process after so many tasks.")
@click.option("--max-rss-mb", type=click.FloatRange(1), callback=finite, help="Start over above so much memory.")
@click.option("--no-sweep", is_flag=True, help="Leave the sweep to other workers and `rl resurrector`.")
@stays
@click.pass_context
def worker(ctx: click.Context, /, modules: tuple[str, ...], **given: Any) -> None:
    """Run the tasks of MODULES: `rl worker shop.tasks`, or a file, `rl worker tasks.py`.

    SIGTERM: finish what runs (RELIER_GRACEFUL_SHUTDOWN_TIMEOUT, 30 s), hand back the rest, leave. Exit codes: 0 all
    finished, 3 some tasks were handed back.
    """
    start_logging(given["log_level"])
    settings, queues = settings_for(ctx), every_queue(given["queues"], given["queue"])
    if given["processes"] is not None:
        command = child_command(ctx, given, modules)
        raise SystemExit(Supervisor(settings, command, given["processes"]).run())
    run_worker(
        settings,
        WorkerOptions(
            queues=queues,
            concurrency=given["concurrency"] or settings.concurrency,
            modules=modules,
            max_tasks=given["max_tasks"],
            max_rss_mb=given["max_rss_mb"],
            isolated=given["isolated"],
            sweep=not given["no_sweep"],
        ),
    )


def child_command(ctx: click.Context, given: dict[str, Any], modules: tuple[str, ...]) -> list[str]:
    """What a supervised child runs: `rl worker` without --processes, on the store that was named, wherever it was."""
    command = [sys.executable, "-m", "relier.cli", "worker", *modules]
    for name, value in (given | {name: said(ctx, name) for name in ("url", "namespace")}).items():
        option = f"--{name.replace('_', '-')}"
        if name == "processes" or value in (None, (), False):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            command += [option] if each is True else [option, str(each)]
    return command


@click.command()
@stays
@click.pass_context
def resurrector(ctx: click.Context, /, log_level: str, **_: Any) -> None:
    """Sweep alone: return the tasks of dead workers, wake what is due, remove what has ended."""
    start_logging(log_level)
    asyncio_run(sweep_until_told(settings_for(ctx)))


async def sweep_until_told(settings: Settings) -> int:
    client = Client(settings)
    phoenix = Phoenix(settings, client.store, client.ledger)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, phoenix.end)
    await client.aopen()
    every, where = settings.resurrection_check_interval, place_of(settings)
    logging.getLogger("relier.phoenix").info("the resurrector sweeps every %g s, %s", every, where)
    await phoenix.run()
    await client.aclose()
    return 0


@click.command()
@click.argument("modules", nargs=-1, required=True)
@click.option(
    "--queues", "-q", multiple=True, metavar="A,B", help="Queues, in order of preference.  [default: default]"
)
@stays
@click.pass_context
def dev(ctx: click.Context, /, modules: tuple[str, ...], **given: Any) -> None:
    """A worker for your own tasks, started over whenever a Python file here changes.

    On the embedded store of this project, unless --url or RELIER_REDIS_URL names another. When it leaves or starts
    over, tasks that run have 2 s to finish, unless RELIER_GRACEFUL_SHUTDOWN_TIMEOUT says otherwise; the rest is handed
    back.
    """
    start_logging(given["log_level"])
    settings = settings_for(ctx)
    every_queue(given["queues"])  # what is wrong with it is told here, once, and not by every child
    os.environ.setdefault("RELIER_GRACEFUL_SHUTDOWN_TIMEOUT", "2")
    command = child_command(ctx, given, modules)
    where = place_of(settings)
    click.echo(f"rl dev: {', '.join(modules)} on {where}; edit a file and it starts over; Ctrl-C leaves")
    code = Supervisor(settings, command, 1, Watch(Path.cwd())).run()
    flush()
    raise SystemExit(code)


class Watch:
    """Whether a Python file below a folder changed since the last look, by its time of change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._look()

    def __call__(self) -> bool:
        now = self._look()
        changed, self._seen = now != self._seen, now
        return changed

    def _look(self) -> dict[str, int]:
        seen: dict[str, int] = {}
        for at, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith((".", "__pycache__", "node_modules"))]
            for name in files:
                if name.endswith(".py"):
                    file = os.path.join(at, name)
                    try:
                        seen[file] = os.stat(file).st_mtime_ns
                    except OSError:  # gone in between
                        continue
        return seen
