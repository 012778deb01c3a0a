"""Run Celery's own integration tests on plain Celery and on adopted apps, and compare.

    CELERY_SOURCE=celery-5.7.0.tar.gz make test-celery-upstream

Both runs use the installed Celery with the tests of CELERY_SOURCE. They start their own servers: one is the broker and
the result backend, another is the ledger. A failed test is run up to two more times before it counts as failed, because
several of Celery's tests depend on timing. Each test that passes plain must pass adopted, or be listed in
documented.toml with its reason. What is listed there is not run again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celery

from tests.support.servers import Server

HERE = Path(__file__).parent
DOCUMENTED = HERE / "documented.toml"
TRIES = 3
NOT_RUN = ("collection failure", "internal error")  # a test that needs a package or a service that is not here
# `native`, as Celery's tests for deep recursion break pytest's own tracebacks.
OPTIONS = (
    "-p celery.contrib.pytest -p no:relier -c /dev/null --rootdir . -q --tb native --timeout 300 "
    "--continue-on-collection-errors -o python_classes=test_* -o junit_family=legacy"
)
HOW_TO_GET_IT = f"""\
CELERY_SOURCE is not set. Set it to Celery's source, a checkout or an sdist, which has the tests to run. For example:

  pip download --no-binary :all: --no-deps celery=={celery.__version__}
  CELERY_SOURCE=celery-{celery.__version__}.tar.gz make test-celery-upstream

or a checkout: git clone --branch v{celery.__version__} https://github.com/celery/celery
"""


@dataclass(frozen=True)
class Documented:
    """A test that may fail on adopted apps. `test`: its name, without parameters. `why`: the reason."""

    test: str
    why: str


def documented() -> list[Documented]:
    return [Documented(**each) for each in tomllib.loads(DOCUMENTED.read_text())["differences"]]


def reason_of(test: str, known: Iterable[Documented]) -> str | None:
    """Return why a test may fail, or None. The test is found by its full name, or by its name without parameters."""
    return next((each.why for each in known if each.test in (test, test.partition("[")[0])), None)


# --- the source ------------------------------------------------------------------------------------------------------


def copy_tests(source: Path, folder: Path) -> None:
    """Copy only the tests, so that they import the installed Celery."""
    if source.is_dir():
        shutil.copytree(source / "t", folder / "t")
        return
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts[1:]
            if parts and parts[0] == "t":
                archive.extract(member.replace(name=str(Path(*parts))), folder, filter="data")


def version_in(source: Path) -> str:
    """Return the version of the source, as its package states it."""
    if source.is_dir():
        text = (source / "celery" / "__init__.py").read_text()
    else:
        with tarfile.open(source) as archive:
            name = next(n for n in archive.getnames() if Path(n).parts[1:] == ("celery", "__init__.py"))
            file = archive.extractfile(name)
            text = file.read().decode() if file is not None else ""
    return next(line.split("'")[1] for line in text.splitlines() if line.startswith("__version__"))


# --- one run ---------------------------------------------------------------------------------------------------------


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, str]]:
    """Start a server for broker and result backend, and another for the ledger. Return the environment for both."""
    broker, ledger = Server(folder / "broker"), Server(folder / "ledger")
    try:
        broker.start()
        ledger.start()
        yield {
            "TEST_BROKER": f"{broker.tcp_url}/0",
            "TEST_BACKEND": f"{broker.tcp_url}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(broker.port),
            "RELIER_REDIS_URL": ledger.tcp_url,
            "WORKER_LOGLEVEL": "INFO",  # as Celery's tox.ini has it
        }
    finally:
        broker.kill()
        ledger.kill()


class Run:
    """One run of Celery's tests, plain or adopted. `outcomes`: test -> passed, failed, skipped or not run."""

    def __init__(self, name: str, folder: Path, selection: Sequence[str]) -> None:
        self.name = name
        self.folder = folder
        self.outcomes: dict[str, str] = {}
        self._selection = selection

    def run(self) -> None:
        for attempt in range(1, TRIES + 1):
            tests = self._selection if attempt == 1 else sorted(self.failed() - self.expected())
            if not tests:
                return
            print(f"{self.name}: {'all' if attempt == 1 else len(tests)} tests, run {attempt} of {TRIES}", flush=True)
            with tempfile.TemporaryDirectory() as place, servers(Path(place)) as env:
                self.outcomes |= self._pytest(tests, env, attempt)

    def expected(self) -> set[str]:
        """Return the tests that may fail here. They are left out, because many of them wait for minutes before they
        fail."""
        known = documented() if self.name == "adopted" else []
        return {test for test in self.failed() if reason_of(test, known) is not None}

    def failed(self) -> set[str]:
        return self.ended("failed")

    def passed(self) -> set[str]:
        return self.ended("passed")

    def ended(self, how: str) -> set[str]:
        return {test for test, outcome in self.outcomes.items() if outcome == how}

    def _pytest(self, tests: Sequence[str], env: dict[str, str], attempt: int) -> dict[str, str]:
        report = self.folder / f"{self.name}-{attempt}.xml"
        plugins = ["-p", "adopting"] if self.name == "adopted" else []
        command = [sys.executable, "-m", "pytest", *plugins, *OPTIONS.split(), "--junit-xml", str(report), *tests]
        paths = {"PYTHONPATH": os.pathsep.join([str(HERE), str(self.folder)])}
        paths["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        paths["PYTHONUNBUFFERED"] = "1"  # the log shows how far it is
        with (self.folder / f"{self.name}-{attempt}.log").open("w") as log:
            run_whole(command, cwd=self.folder, env=os.environ | env | paths, stdout=log, stderr=subprocess.STDOUT)
        return dict(read_report(report))


def run_whole(command: Sequence[str], **options: Any) -> None:
    """Run a command. When it ends, or this process is told to stop, end everything that the command has started."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_report(report: Path) -> Iterator[tuple[str, str]]:
    """Return the outcome of each test. A test that fails in its setup or its teardown has failed. The tests of a file
    that cannot be imported were not run."""
    seen: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, name = case.get("file", ""), case.get("name", "")
        group = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        test = "::".join(filter(None, [file, group, name]))
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if any(child.get("message") in NOT_RUN for child in case):
            seen[file or name] = "not run"
        elif seen.get(test) != "failed":
            seen[test] = outcome
    yield from seen.items()


# --- the comparison --------------------------------------------------------------------------------------------------


def compare(plain: Run, adopted: Run, known: Sequence[Documented]) -> int:
    """Print the differences. Return the exit code: 1 if a difference is not documented."""
    for run in (plain, adopted):
        counts = ", ".join(f"{len(run.ended(how))} {how}" for how in ("passed", "failed", "skipped"))
        print(f"{run.name}: {counts}; not run: {', '.join(sorted(run.ended('not run'))) or 'none'}")
    print(f"failed plain: {', '.join(sorted(plain.failed())) or 'none'}")
    differs = sorted(plain.passed() - adopted.passed())
    unknown = [test for test in differs if reason_of(test, known) is None]
    for test in differs:
        print(f"  documented  {test}: {reason_of(test, known)}" if test not in unknown else f"  NOT DOCUMENTED  {test}")
    fine = [each.test for each in known if not any(reason_of(test, [each]) for test in differs)]
    if fine:
        print(f"documented, but they passed (or were not run): {', '.join(fine)}")
    print(f"{len(differs)} pass plain and not adopted, {len(differs) - len(unknown)} of them documented")
    return 1 if unknown else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=["plain", "adopted"], help="one of the two runs, without a comparison")
    parser.add_argument("--logs", type=Path, help="keep the logs and reports in this folder")
    parser.add_argument("tests", nargs="*", default=["t/integration"], help="which tests, as pytest takes them")
    given = parser.parse_args()
    where = os.environ.get("CELERY_SOURCE", "")
    if not where or not Path(where).exists():
        print(HOW_TO_GET_IT if not where else f"CELERY_SOURCE names {where}, which does not exist", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the started processes are ended, too
    source = Path(where).resolve()
    print(f"tests of Celery {version_in(source)}, on Celery {celery.__version__}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) if given.logs is None else given.logs.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "t", ignore_errors=True)
        copy_tests(source, folder)
        runs = [Run(name, folder, given.tests) for name in ("plain", "adopted") if given.only in (None, name)]
        for run in runs:
            run.run()
        if given.only is not None:
            print(f"{runs[0].name}: {len(runs[0].passed())} passed, failed: {sorted(runs[0].failed())}")
            return 0
        return compare(runs[0], runs[1], documented())


if __name__ == "__main__":
    raise SystemExit(main())
