"""`python -m tests.support.repeat [--times N] [--jobs N] [SUITES …]`: the tests again and again on a busy machine.

Every core is kept busy, by stress-ng where it is installed and else by loops of our own, so that tests which depend on
how fast the machine is show it. Each failure is printed with the round it happened in; the exit code is their number,
at most 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.support import ROOT

SELECTED = "not slow and not databases"  # as `make test`
BUSY = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("suites", nargs="*", default=["tests"])
    given = parser.parse_args()
    failures: Counter[str] = Counter()
    broken = 0
    with busy_cores(), tempfile.TemporaryDirectory() as folder:
        for number in range(1, given.times + 1):
            code, found = run_once(Path(folder) / "report.xml", given.jobs, given.suites)
            failures.update(found)
            broken += bool(code and not found)  # it did not get as far as the tests
            print(f"round {number} of {given.times}: {'passed' if code == 0 else f'{len(found)} failed'}", flush=True)
            for name in found:
                print(f"  FAILED {name}", flush=True)
    for name, times in failures.most_common():
        print(f"failed in {times} of {given.times} rounds: {name}")
    if broken:
        print(f"{broken} rounds did not run to their end")
    return 1 if failures or broken else 0


def run_once(report: Path, jobs: int, suites: list[str]) -> tuple[int, list[str]]:
    """Run the tests once. Return the exit code, and which tests failed."""
    report.unlink(missing_ok=True)
    options = ["-q", "-n", str(jobs), "--dist", "loadgroup", "-m", SELECTED, "--junit-xml", str(report)]
    code = subprocess.run([sys.executable, "-m", "pytest", *options, *suites], cwd=ROOT, check=False).returncode
    if not report.exists():
        return code, []
    cases = ElementTree.parse(report).iter("testcase")
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return code, [f"{case.get('classname')}::{case.get('name')}" for case in bad]


@contextmanager
def busy_cores() -> Iterator[None]:
    """Start one process per core that computes without end, at normal priority."""
    cores = os.cpu_count() or 1
    stress = shutil.which("stress-ng")
    commands = [[stress, "--cpu", str(cores), "--quiet"]] if stress else [[sys.executable, "-c", BUSY]] * cores
    running = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
