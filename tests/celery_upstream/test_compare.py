"""The comparison with plain Celery: what it reads from reports, and how it judges differences."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from celery_upstream.compare import Documented, Run, compare, copy_tests, documented, read_report, version_in

REPORT = """<testsuites><testsuite>
<testcase classname="t.integration.test_a.test_chord" name="test_one[1]" file="t/integration/test_a.py"/>
<testcase classname="t.integration.test_a" name="test_two" file="t/integration/test_a.py"><failure/></testcase>
<testcase classname="t.integration.test_a" name="test_two" file="t/integration/test_a.py"/>
<testcase classname="t.integration.test_a" name="test_three" file="t/integration/test_a.py"><skipped/></testcase>
<testcase classname="" name="t.integration.test_b" file="t/integration/test_b.py">
<error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read_test_by_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert dict(read_report(tmp_path / "report.xml")) == {
        "t/integration/test_a.py::test_chord::test_one[1]": "passed",
        "t/integration/test_a.py::test_two": "failed",
        "t/integration/test_a.py::test_three": "skipped",
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
