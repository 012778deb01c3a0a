"""The examples in the documentation run, and do what the pages show."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relier import (
    AsyncSchedules,
    Limit,
    OpenBatch,
    OwnBatch,
    ScheduleFiring,
    ScheduleInfo,
    Schedules,
    SyncWorkflowReceipt,
    TaskReceipt,
    WorkflowProgress,
    WorkflowReceipt,
    batch,
    schedule,
)
from relier.schedules.spec import ScheduleOptions
from tests.support.doc_pages import BLOCK, Terminal, steps_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(page for page in ROOT.glob("docs/**/*.md") if BLOCK.search(page.read_text()))]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.timeout(300)  # dozens of commands, each a process of its own
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_happens(page: Path, terminal: Terminal) -> None:
    """The page's files are written and its commands are run, on an embedded store and with a real worker."""
    terminal.run(page)


def test_the_readme_fits_fifteen_lines_of_code_and_two_commands() -> None:
    code, *commands = steps_of(ROOT / "README.md")
    assert len([line for line in code.lines[0].splitlines()[1:] if line.strip()]) <= 15
    assert [step.command.split()[0] for step in commands] == ["rl", "python"]


def test_the_index_lists_every_page_and_nothing_else() -> None:
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", (docs / "index.md").read_text())} - {
        ROOT / "ARCHITECTURE.md",
        docs / "decisions",
    }
    assert linked == {page for page in docs.rglob("*.md") if page.parent.name != "decisions"} - {docs / "index.md"}


def test_the_files_of_the_outbox_tutorial_are_the_example() -> None:
    for step in steps_of(ROOT / "docs" / "tutorial-outbox.md"):
        if step.file:
            assert (ROOT / "examples" / "outbox_shop" / step.file).read_text() == step.lines[0]


def test_the_reference_matches_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "described"),
    [
        ("tasks", TaskReceipt),
        ("schedules", Schedules),
        ("schedules", AsyncSchedules),
        ("schedules", ScheduleInfo),
        ("schedules", ScheduleFiring),
        ("schedules", schedule),
        ("workflows", batch),
        ("workflows", WorkflowReceipt),
        ("workflows", SyncWorkflowReceipt),
        ("workflows", WorkflowProgress),
        ("workflows", OpenBatch),
        ("workflows", OwnBatch),
        ("limits", Limit),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_reference_names_everything_public(page: str, described: Any) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    missing = [name for name in public_names(described) if not re.search(rf"`(?:await )?{name}\b", text)]
    assert missing == []


def public_names(described: Any) -> list[str]:
    """Return the public members of a class, or the options of a function or of a class that users create."""
    if described is schedule:
        return list(ScheduleOptions.__annotations__)
    if inspect.isclass(described) and described is not Limit:
        owners = described.__mro__[:-1]
        members = {name for owner in owners for name in (*vars(owner), *inspect.get_annotations(owner))}
        set_in_init = set(re.findall(r"^        self\.([a-z]\w*) =", inspect.getsource(described), re.MULTILINE))
        return sorted(name for name in members | set_in_init if not name.startswith("_"))
    return [name for name in inspect.signature(described).parameters if name != "members"]


def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "demo"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was lost, nothing was committed twice" in done.stdout
    assert re.search(r"zombies refused\D+[1-9]", done.stdout), done.stdout


def test_links_in_documents_lead_somewhere() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    for document in documents:
        for target, _, anchor in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", document.read_text()):
            page = document.parent / target if target else document
            assert page.exists(), f"{document.name} links to {target}"
            if anchor:
                assert anchor in anchors_of(page), f"{document.name} links to {target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
