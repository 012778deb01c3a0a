"""Run a worker as a process: signals, uvloop, exit codes, and how the process starts again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from relier import background, registry
from relier.engines.heartbeat import Liveness
from relier.engines.monitoring.watched_worker import WorkerWatch
from relier.engines.startup import check_schedules, check_tasks_fit_shards
from relier.engines.supervisor import MONITOR_FD, REPORT_FD, child_report, drained_line
from relier.engines.worker import EXIT_CLEAN, EXIT_FORCED, EXIT_RECYCLE, Worker, WorkerOptions
from relier.errors import StoreError, StoreSetupError, WorkerInitializationError
from relier.logs.setup import start_logging
from relier.run.forks import let_forks_be_ended
from relier.run.isolated.origin import Origin
from relier.settings import Settings
from relier.stop_signals import refuse_on_windows, stop_signals
from relier.submit.client import Client, use_client

log = logging.getLogger("relier.worker")

PR_SET_PDEATHSIG = 1
STOPPING = {signal.SIGTERM, signal.SIGINT}
LISTEN_S = 0.25  # how often the worker checks that its signal handlers are still installed


def run_worker(settings: Settings, options: WorkerOptions) -> NoReturn:
    """Import the tasks, work until told to stop, then exit the process.

    This never returns, so that a thread that does not end cannot delay the exit.
    """
    refuse_on_windows("a worker")
    for number in stop_signals():  # until the worker installs its own: no task has begun yet
        signal.signal(number, lambda *_: leave(EXIT_CLEAN))
    let_forks_be_ended()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # deliver signals that came while the process replaced itself
    registry.load(options.modules)
    start_logging(settings.log_level, settings.log_format)  # after the import, which may configure logging
    if not any(registry.known_tasks()):
        raise WorkerInitializationError(
            f"no tasks found in {', '.join(options.modules) or 'any module, because none was given'}; decorate "
            f"functions with @rl_task, and give the module that defines them"
        )
    check_schedules()
    if settings.shards > 1:
        check_tasks_fit_shards()
    pipe, monitor = os.environ.pop(REPORT_FD, None), os.environ.pop(MONITOR_FD, None)
    options = replace(options, origin=options.origin.without(REPORT_FD).without(MONITOR_FD))
    signals = StopSignals(settings.graceful_shutdown_timeout)
    give_up: Callable[[], None] = partial(start_over, options.origin)
    if pipe is not None:
        on_beat = lambda liveness: report_to_parent(int(pipe), liveness)  # noqa: E731 - a partial would be longer
        options = replace(options, on_beat=on_beat, supervisor=os.getppid())
        give_up = lambda: os._exit(EXIT_RECYCLE)  # noqa: E731 - the parent starts another process
        if sys.platform == "linux":  # a parent that was killed cannot tell its children to drain
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    leaves = lambda: leave(EXIT_FORCED) if signals.received else give_up()  # noqa: E731 - a signal may have come by then
    options = replace(options, give_up=leaves, leave_by=lambda: signals.leave_by)
    pipes = (None if pipe is None else int(pipe), None if monitor is None else int(monitor))
    code = asyncio_run(work(settings, options, signals, *pipes))
    if code == EXIT_RECYCLE:
        give_up()
    leave(code)


class StopSignals:
    """Record that a signal asked the worker to stop, and by when the worker must have ended (`leave_by`, monotonic).

    The loop handles the same signals, but not while a task blocks it. This handler runs in the main thread, between two
    bytecode instructions of the code that runs there. Not covered: one long call in C, during which no Python code runs
    in that thread.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._listens = False
        self.leave_by = math.inf

    def __call__(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        at_once = self.received and number == signal.SIGINT
        self.leave_by = min(self.leave_by, now if at_once else now + self._patience)

    @property
    def received(self) -> bool:
        return self.leave_by < math.inf

    def listen(self, loop: asyncio.AbstractEventLoop, orders: Mapping[signal.Signals, Callable[[], None]]) -> None:
        """Install the signal handlers, and keep them installed.

        If a task's code replaces a handler, the worker installs its own again within LISTEN_S. Not covered: a task that
        blocks the loop and ignores the signal. Only a supervisor ends such a worker.
        """
        for number, order in orders.items():
            found = signal.getsignal(number)
            if found is self:
                continue
            if self._listens:
                log.warning("a task replaced the handler of %s; the worker has reinstalled its own", number.name)
            loop.add_signal_handler(number, order)
            signal.signal(number, self)  # the loop still gets the signal: it reads signals from a socket
        self._listens = True
        loop.call_later(LISTEN_S, self.listen, loop, orders)


async def work(
    settings: Settings,
    options: WorkerOptions,
    signals: StopSignals,
    pipe: int | None = None,
    monitor: int | None = None,
) -> int:
    """Run a worker. The supervisor gets reports through the descriptor `pipe`, and asks questions through `monitor`."""
    client = Client(settings).shards[options.shard]
    use_client(client.whole)  # tasks may push to any shard
    watch = WorkerWatch(client, monitor)
    worker = Worker(client, watch.observed(options))
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        (worker.leave_now if worker.draining else worker.drain)()

    orders = {signal.SIGTERM: worker.drain, signal.SIGINT: interrupted}
    signals.listen(loop, {number: orders[number] for number in stop_signals()})
    if pipe is not None:
        loop.add_reader(pipe, RevivedTaskReader(pipe, loop, worker.on_swept))
    try:
        with watch.serve(worker, options.concurrency):
            code = await worker.run()
    except StoreSetupError:
        raise
    except StoreError as error:
        raise WorkerInitializationError(f"the worker could not start: {error}") from error
    if code == EXIT_RECYCLE:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # keep later signals for the next process
        await asyncio.sleep(0.01)  # let the loop handle earlier signals, for which a busy machine may need longer
        code = EXIT_RECYCLE if worker.recycling and not signals.received else EXIT_CLEAN
    await worker.budget.spend(client.whole.aclose())
    if pipe is not None:
        report_shutdown(pipe, worker.budget.took)
    return code


def asyncio_run(main: Coroutine[Any, Any, int]) -> int:
    """Run `main` on uvloop if it is installed, else on asyncio's loop. Do not wait for tasks that do not end."""
    try:
        import uvloop

        new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    loop = new_loop()
    asyncio.set_event_loop(loop)
    return background.run_until_done(loop, main)


def report_shutdown(pipe: int, seconds: float) -> None:
    """Tell the supervisor how long the shutdown took, unless it is gone or does not read."""
    with contextlib.suppress(OSError):
        os.write(pipe, drained_line(seconds))


def report_to_parent(pipe: int, liveness: Liveness) -> None:
    """Write one line to the supervisor.

    If the pipe is full, the line is dropped. A closed pipe means that the parent is gone. This check is needed because
    PDEATHSIG does not exist on every system, and is not sent if the parent died before this process asked for it.
    """
    deadlines = [at for attempt in list(liveness.attempts.values()) if (at := attempt.overdue_at) is not None]
    try:
        os.write(pipe, child_report(liveness.worker_id, min(deadlines, default=None)))
    except BrokenPipeError:
        os.kill(os.getpid(), signal.SIGTERM)
    except OSError:
        return


class RevivedTaskReader:
    """Read from the supervisor's pipe which tasks of dead sibling processes it revived, and pass them to `on_swept`."""

    def __init__(
        self,
        pipe: int,
        loop: asyncio.AbstractEventLoop,
        on_swept: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self._pipe = pipe
        self._loop = loop
        self._on_swept = on_swept
        self._rest = b""

    def __call__(self) -> None:
        try:
            data = os.read(self._pipe, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the parent is gone; the next report to it ends this process
            self._loop.remove_reader(self._pipe)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._on_swept([(task_id, state) for task_id, _, state in (line.decode().partition(" ") for line in lines)])


def start_over(origin: Origin) -> None:
    """Replace this process with a fresh run of the same command. Code that does not end is gone with the old
    process."""
    if origin.folder is not None:
        try:
            os.chdir(origin.folder)
        except OSError as error:
            log.warning(
                "the worker cannot restart in its original folder, so it restarts in the current one: %s", error
            )
    flush()
    os.execve(origin.command[0], [*origin.command], origin.environment)  # noqa: S606


def leave(code: int) -> NoReturn:
    flush()
    os._exit(code)


def flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
