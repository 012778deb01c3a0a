"""The comparison with plain Celery: how it reads reports, and how it judges differences."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.celery_upstream.compare import Documented, Run, compare, copy_tests, documented, read_report, version_in
from tests.support import PYTHONPATH
from tests.support.servers import wait_until

REPORT = """<testsuites><testsuite>
<testcase classname="t.integration.test_a.test_chord" name="test_one[1]" file="t/integration/test_a.py"/>
<testcase classname="t.integration.test_a" name="test_two" file="t/integration/test_a.py"><failure/></testcase>
<testcase classname="t.integration.test_a" name="test_two" file="t/integration/test_a.py"/>
<testcase classname="t.integration.test_a" name="test_three" file="t/integration/test_a.py"><skipped/></testcase>
<testcase classname="" name="t.integration.test_b" file="t/integration/test_b.py">
<error message="collection failure"/></testcase>
<testcase classname="pytest" name="internal"><error message="internal error"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_test_by_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert dict(read_report(tmp_path / "report.xml")) == {
        "t/integration/test_a.py::test_chord::test_one[1]": "passed",
        "t/integration/test_a.py::test_two": "failed",
        "t/integration/test_a.py::test_three": "skipped",
        "t/integration/test_b.py": "not run",
        "internal": "not run",
    }


def run_of(name: str, outcomes: dict[str, str]) -> Run:
    run = Run(name, Path(), [])
    run.outcomes = outcomes
    return run


@pytest.mark.parametrize(
    ("adopted", "code"),
    [
        ({"t::a": "passed", "t::b[1]": "passed", "t::c": "failed"}, 0),
        ({"t::a": "passed", "t::b[1]": "failed", "t::c": "failed"}, 0),
        ({"t::a": "failed", "t::b[1]": "passed", "t::c": "failed"}, 1),
        ({"t::a": "skipped", "t::b[1]": "passed", "t::c": "failed"}, 1),
        ({}, 1),
    ],
    ids=["nothing", "documented", "not documented", "skipped", "not run"],
)
def test_only_a_difference_that_is_not_documented_fails(adopted: dict[str, str], code: int) -> None:
    plain = run_of("plain", {"t::a": "passed", "t::b[1]": "passed", "t::c": "failed"})
    assert compare(plain, run_of("adopted", adopted), [Documented("t::b", "it differs")]) == code


def test_each_documented_difference_has_a_reason() -> None:
    assert all(each.test.startswith("t/integration/") and each.why for each in documented())


def test_a_documented_test_may_fail_adopted_and_is_not_run_again() -> None:
    listed = documented()[0].test
    outcomes = {f"{listed}[1]": "failed", f"{listed}[2]": "passed", "t/integration/test_a.py::test_one": "failed"}
    assert run_of("adopted", outcomes).expected() == {f"{listed}[1]"}
    assert run_of("plain", outcomes).expected() == set()


def test_the_tests_of_an_sdist_are_taken_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "celery-5.7.0"
    for name, text in {"t/integration/test_a.py": "", "celery/__init__.py": "__version__ = '5.7.0'\n"}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    with tarfile.open(tmp_path / "sdist.tar.gz", "w:gz") as archive:
        archive.add(source, "celery-5.7.0")
    for place, where in (("folder", source), ("archive", tmp_path / "sdist.tar.gz")):
        assert version_in(where) == "5.7.0"
        copy_tests(where, tmp_path / place)
        assert [str(path.relative_to(tmp_path / place)) for path in (tmp_path / place).rglob("*.py")] == [
            "t/integration/test_a.py"
        ]


WAITS = """
import os, subprocess, pathlib

def test_it_waits():
    child = subprocess.Popen(["sleep", "300"])
    pids = pathlib.Path(os.environ["PIDS"])
    pids.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
    pids.with_suffix(".new").rename(pids)
    child.wait()
"""


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_everything_it_has_started(number: signal.Signals, tmp_path: Path) -> None:
    source, pids = tmp_path / "celery-5.7.0", tmp_path / "pids"
    for name, text in {"t/integration/test_a.py": WAITS, "celery/__init__.py": "__version__ = '5.7.0'\n"}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    env = os.environ | {"CELERY_SOURCE": str(source), "PIDS": str(pids), "PYTHONPATH": PYTHONPATH}
    comparing, started = subprocess.Popen([sys.executable, "-m", "tests.celery_upstream.compare"], env=env), set[int]()
    try:
        wait_until(pids.exists, 60, "the test")
        started = {*map(int, pids.read_text().split()), *children_of(comparing.pid)}
        assert len(started) == 4, "two servers, pytest and its child"
        comparing.send_signal(number)
        assert comparing.wait(30) != 0
        wait_until(lambda: not any(map(is_alive, started)), 10, "the end of all")
    finally:
        comparing.kill()
        for pid in filter(is_alive, started):
            os.kill(pid, signal.SIGKILL)
