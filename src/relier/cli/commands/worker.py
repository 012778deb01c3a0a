"""rl worker, rl dev, rl resurrector and rl scheduler: the commands that run until they are stopped."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from relier.cli.long_running import finite, long_running_options, metrics_options, settings_for, start_logging_for
from relier.cli.session import option_value
from relier.cli.shards.sweeping import sweep_until_stopped
from relier.engines.process import asyncio_run, flush, run_worker
from relier.engines.supervisor import Supervisor
from relier.engines.worker import WorkerOptions
from relier.errors import ConfigurationError
from relier.ledger.nodes import Role
from relier.run.isolated.origin import Origin
from relier.settings import IMPORT_PATH, MOST_AT_ONCE, Settings
from relier.stop_signals import refuse_on_windows
from relier.submit.client import place_of

lifespan_option = click.option(
    "--lifespan",
    metavar="MODULE:FUNCTION",
    help="Function that opens resources for all tasks of a process; the value it yields is ctx.state. "
    "Overrides RELIER_LIFESPAN.",
)


@click.command()
@click.argument("modules", nargs=-1, required=True)
@click.option(
    "--queues", "-q", multiple=True, metavar="A,B", help="Queues to serve, in order of priority.  [default: default]"
)
@click.option(
    "--queue", multiple=True, metavar="NAME", help="Serve this queue; for names that contain a comma. Repeatable."
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, MOST_AT_ONCE),
    help="Maximum number of concurrent tasks per process.  [default: RELIER_CONCURRENCY, or 100]",
)
@click.option(
    "--processes",
    "-p",
    type=click.IntRange(1),
    help="Start this many worker processes under a supervisor that restarts them. Without it: one process, or one for "
    "each shard.",
)
@click.option(
    "--shards", metavar="0,2", help="Serve only these shards; the processes are dealt to them.  [default: all]"
)
@click.option(
    "--isolated",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Maximum number of processes for tasks with isolate=True, one task each.",
)
@click.option(
    "--max-tasks", type=click.IntRange(1), help="Restart the process after this many tasks; running tasks finish first."
)
@click.option(
    "--max-rss-mb",
    type=click.FloatRange(1),
    callback=finite,
    help="Restart the process when it uses more memory than this, in MB; running tasks finish first.",
)
@lifespan_option
@click.option(
    "--no-sweep", is_flag=True, help="Leave tasks of dead workers, and due tasks, to the sweeps of other processes."
)
@metrics_options
@long_running_options
@click.pass_context
def worker(ctx: click.Context, /, modules: tuple[str, ...], **given: Any) -> None:
    """Run the tasks of MODULES: `rl worker shop.tasks`, or a file, `rl worker tasks.py`.

    On SIGTERM, running tasks get RELIER_GRACEFUL_SHUTDOWN_TIMEOUT (30 s) to finish, and the rest return to their
    queues. Exits with 0 if all finished, and with 3 if some tasks were returned.
    """
    settings, queues = with_lifespan(settings_for(ctx), given["lifespan"]), every_queue(given["queues"], given["queue"])
    shards = served_shards(settings, given["shards"])
    if given["processes"] is not None or len(shards) > 1:
        start_logging_for(ctx)
        command = child_command(ctx, given | {"shards": None}, modules)
        processes = processes_for(shards, given["processes"])
        raise SystemExit(Supervisor(settings, command, processes, shards=shards).run())
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
            origin=Origin.here(child_command(ctx, given, modules)),
            shard=shards[0],
        ),
    )


def served_shards(settings: Settings, given: str | None) -> tuple[int, ...]:
    """Return the numbers of the shards to serve. Raise ConfigurationError if there is no such shard."""
    if given is None:
        return tuple(range(settings.shards))
    words = [word.strip() for word in given.split(",")]
    wrong = [word for word in words if not word.isdecimal() or int(word) >= settings.shards]
    if wrong:
        raise ConfigurationError(
            f"--shards {given} names {wrong[0]!r}, but RELIER_SHARDS is {settings.shards}; the shards are "
            f"{'0' if settings.shards == 1 else f'0 to {settings.shards - 1}'}, separated by commas"
        )
    return tuple(dict.fromkeys(map(int, words)))


def processes_for(shards: Sequence[int], given: int | None) -> int:
    """Return the number of worker processes: at least one for each shard that is served."""
    if given is not None and given < len(shards):
        raise ConfigurationError(
            f"--processes {given} is not enough for {len(shards)} shards: a process serves one shard; start at least "
            f"{len(shards)}, or serve fewer shards here with --shards, and the others on other hosts"
        )
    return given or len(shards)


def with_lifespan(settings: Settings, named: str | None) -> Settings:
    """Return the settings with the lifespan of the command line, if one is named there."""
    if not named:
        return settings
    if not re.fullmatch(IMPORT_PATH, named):
        raise ConfigurationError(f"--lifespan {named} is not MODULE:FUNCTION; write it as shop.tasks:lifespan")
    return settings.replace(lifespan=named)


def child_command(ctx: click.Context, given: dict[str, Any], modules: tuple[str, ...]) -> list[str]:
    """Return the command of a worker process: `rl worker` without --processes, with the same store.

    Supervised children run it, and so does this worker when it restarts. `ctx.obj`: the module that replaces `rl`.
    """
    command = [sys.executable, "-m", ctx.obj or "relier.cli", "worker", *modules]
    for name, value in (given | {name: option_value(ctx, name) for name in ("url", "namespace")}).items():
        option = f"--{name.replace('_', '-')}"
        if name == "processes" or value in (None, (), False):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            command += [option] if each is True else [option, str(each)]
    return command


@click.command()
@metrics_options
@long_running_options
@click.pass_context
def resurrector(ctx: click.Context, /, **_: Any) -> None:
    """Recover the tasks of dead workers, queue due tasks, fire schedules and remove expired records. Runs no tasks.

    Workers do this themselves. Use it to recover tasks while no worker runs.
    """
    start_logging_for(ctx)
    refuse_on_windows("a resurrector")
    asyncio_run(sweep_until_stopped(settings_for(ctx), Role.RESURRECTOR))


@click.command()
@metrics_options
@long_running_options
@click.pass_context
def scheduler(ctx: click.Context, /, **_: Any) -> None:
    """Fire schedules. Needs no application code, and runs no tasks. You may start any number of these processes.

    Workers also fire schedules. Use this command to fire them while no worker runs. Like `rl resurrector`, it also
    recovers tasks of dead workers.
    """
    start_logging_for(ctx)
    refuse_on_windows("a scheduler")
    asyncio_run(sweep_until_stopped(settings_for(ctx), Role.SCHEDULER))


@click.command()
@click.argument("modules", nargs=-1, required=True)
@click.option(
    "--queues", "-q", multiple=True, metavar="A,B", help="Queues to serve, in order of priority.  [default: default]"
)
@lifespan_option
@metrics_options
@long_running_options
@click.pass_context
def dev(ctx: click.Context, /, modules: tuple[str, ...], **given: Any) -> None:
    """Run a worker for development. It restarts whenever a Python file in this folder changes.

    If the code cannot be imported, the next change starts the worker.

    Uses the embedded store of this project, unless --url or RELIER_REDIS_URL is set. On exit or restart, running tasks
    have 2 s to finish, or RELIER_GRACEFUL_SHUTDOWN_TIMEOUT if set; the rest return to their queues.
    """
    start_logging_for(ctx)
    settings = settings_for(ctx)
    every_queue(given["queues"])  # report a bad value once, not once per child
    os.environ.setdefault("RELIER_GRACEFUL_SHUTDOWN_TIMEOUT", "2")
    command = child_command(ctx, given, modules)
    shards = served_shards(settings, None)
    what = f"{ctx.command_path}: running {', '.join(modules)} on {place_of(settings)}"
    click.echo(f"{what}. Restarts when a file changes; press Ctrl-C to stop.")
    code = Supervisor(settings, command, len(shards), SourceWatcher(Path.cwd()), shards).run()
    flush()
    raise SystemExit(code)


class SourceWatcher:
    """Report whether a Python file below a folder changed since the last call, by modification time."""

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
                    except OSError:  # deleted in the meantime
                        continue
        return seen


def every_queue(lists: Sequence[str], exact: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the queue names in order, without duplicates: `lists` such as `a,b` are split, `exact` names are not."""
    taken = [[name.strip() for name in text.split(",") if name.strip()] for text in lists]
    if not all([*taken, *exact]):
        raise ConfigurationError("a queue was given without a name; name it, or leave the option out for `default`")
    return tuple(dict.fromkeys([*(name for names in taken for name in names), *exact])) or ("default",)
