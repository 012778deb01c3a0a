"""The record of a release's schedules: what belongs together, what is left to do, and that the page quotes it."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from types import FrameType

import pytest

from proof.release.digest import ROOT, lua_meaning, proved_files, python_meaning
from proof.release.record import BEGIN, END, PAGE, Proof, SeedRange, joined, of_digest, quoted, read, save
from proof.release.run import Ran, Release
from proof.simulator.profiles import PROFILES
from proof.simulator.simulate import Outcome, run_schedule

TODAY = date(2026, 11, 19)
# They raise and word errors, and hold fixed values: no schedule takes another course because of them.
DECIDE_NOTHING = ("src/relier/errors.py", "src/relier/settings", "src/relier/options.py")


# --- what a record is of ---------------------------------------------------------------------------------------------


def test_comments_and_layout_of_lua_do_not_count() -> None:
    plain = "local a = '--no comment' .. \"it's\"\nreturn a"
    for same in (
        "-- about a\nlocal a   = '--no comment' .. \"it's\" -- why\n\n  return a",
        "--[[ long\n comment ]] local a = '--no comment' .. \"it's\"\nreturn a",
    ):
        assert lua_meaning(same) == lua_meaning(plain)


@pytest.mark.parametrize(
    "other",
    [
        "local a = '--no  comment' .. \"it's\"\nreturn a",
        "local a = '--no comment' .. \"it's\"\nreturn -a",
        "-- use: time\nlocal a = '--no comment' .. \"it's\"\nreturn a",
        'local a = [[--no comment]] .. "it\'s"\nreturn a',
    ],
)
def test_every_other_change_of_lua_counts(other: str) -> None:
    assert lua_meaning(other) != lua_meaning("local a = '--no comment' .. \"it's\"\nreturn a")


def test_every_lua_file_survives_without_its_comments() -> None:
    for path in (path for path in proved_files() if path.suffix == ".lua"):
        bare = lua_meaning(path.read_text())
        assert lua_meaning(bare) == bare, path


def test_comments_docstrings_and_layout_of_python_do_not_count() -> None:
    plain = "def f(a):\n    return (a, 'b')\n"
    commented = '"""Module."""\n\n\ndef f(a):  # why\n    """F."""\n    return (\n        a,\n        "b",\n    )\n'
    assert python_meaning(commented) == python_meaning(plain)


@pytest.mark.parametrize(
    "other",
    ["def f(a):\n    return (a, 'c')\n", "def f(b):\n    return (b, 'b')\n", "def f(a):\n    return (a, b'b')\n"],
)
def test_every_other_change_of_python_counts(other: str) -> None:
    assert python_meaning(other) != python_meaning("def f(a):\n    return (a, 'b')\n")


def test_the_digest_covers_what_schedules_run() -> None:
    ran: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            ran.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        for seed in range(len(PROFILES)):
            run_schedule(seed)
    finally:
        sys.setprofile(None)
    names = {Path(name).relative_to(ROOT).as_posix() for name in ran if Path(name).is_relative_to(ROOT)}
    ours = {name for name in names if name.startswith(("src/", "proof/"))}
    covered = {path.relative_to(ROOT).as_posix() for path in proved_files()}
    assert len(ours) > 40
    assert {name for name in ours - covered if not name.startswith(DECIDE_NOTHING)} == set()


# --- the record ------------------------------------------------------------------------------------------------------


def test_ranges_that_touch_or_overlap_are_joined() -> None:
    ranges = [SeedRange(400, 599, 100), SeedRange(0, 199, 100), SeedRange(200, 299, 50), SeedRange(500, 699, 100)]
    assert joined(ranges) == (SeedRange(0, 299, 150), SeedRange(400, 699, 150))
    assert joined([SeedRange(0, 99, 10), SeedRange(10, 19, 1)]) == (SeedRange(0, 99, 10),)


def test_the_first_gap_is_next() -> None:
    assert Proof("d", TODAY).gap(0, 1000) == (0, 1000)
    proof = Proof("d", TODAY, (SeedRange(0, 199, 1), SeedRange(400, 599, 1)))
    assert proof.gap(0, 1000) == (200, 400)
    assert proof.gap(450, 1000) == (600, 1000)
    assert proof.gap(0, 300) == (200, 300)
    assert proof.gap(400, 600) is None


@pytest.fixture
def release(tmp_path: Path) -> Release:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    return Release(1, 30, tmp_path / "record.toml", page, "n" * 64)


def test_what_is_saved_is_read_and_quoted(release: Release) -> None:
    older, newer = (
        Proof("a" * 64, TODAY, (SeedRange(0, 9, 100),)),
        Proof("b" * 64, TODAY, (SeedRange(0, 999, 12_345), SeedRange(2000, 2999, 10_000))),
    )
    save(older, release.record, release.page)
    save(newer, release.record, release.page)
    assert read(release.record) == [newer, older]
    assert of_digest(read(release.record), older.digest) == older
    assert of_digest(read(release.record), "c" * 64).ranges == ()
    page = release.page.read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "**2,000 of 1,000,000 schedules, 22,345 calls: 0 violations.** Seeds 0–999, 2,000–2,999" in page
    assert "old" not in page


def test_a_violation_ends_a_run_and_its_chunk_does_not_count(
    release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Proof("d", TODAY, (SeedRange(0, 9, 5),))
    bad = Outcome(25, "calm", 3, "one-owner", "seed 25 (calm): one-owner")
    runs = [Ran(10, 10, 6, []), Ran(20, 10, 6, [bad]), Ran(30, 10, 6, [])]
    proof, violations = release.prove(known, runs)
    assert violations == 1
    assert proof.ranges == (SeedRange(0, 19, 11),)
    assert read(release.record)[0].ranges == proof.ranges
    assert "seed 25 (calm): one-owner" in capsys.readouterr().out


def test_a_run_continues_where_the_last_one_ended(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    save(Proof("d" * 64, TODAY, (SeedRange(0, 29, 1),)), release.record, release.page)  # of other code
    assert release.go_on(start=20) == 0
    (now, _) = read(release.record)
    assert [(each.first, each.last) for each in now.ranges] == [(20, 29)]
    assert now.calls == sum(run_schedule(seed).steps for seed in range(20, 30))
    assert release.go_on() == 0
    assert [(each.first, each.last) for each in read(release.record)[0].ranges] == [(0, 29)]
    assert release.go_on() == 0
    assert "30 of 30 schedules" in capsys.readouterr().out.splitlines()[-1]


def test_the_page_quotes_the_record() -> None:
    page = PAGE.read_text()
    assert quoted(page, read()) == page, "run `make prove-release MINUTES=0`"
