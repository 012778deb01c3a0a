"""The public API: every name that it lists exists, at run time and for type checkers."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

import relier

INSTALLS = re.compile(r"pip install ['\"]?relier")


@pytest.mark.parametrize("name", relier.__all__)
def test_a_name_that_is_listed_can_be_imported(name: str) -> None:
    assert getattr(relier, name).__module__.startswith("relier") or name == "task_context"


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(relier.__file__ or "").read_text())
    (for_types,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = [alias.name for node in for_types.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(relier.__all__)
    assert len(set(relier.__all__)) == len(relier.__all__)


def test_the_errors_of_guards_are_public() -> None:
    errors = importlib.import_module("relier.errors")
    for name in ("AdmissionRejectedError", "CheckpointStoreError", "CheckpointTooLargeError", "DuplicateTaskError",
                 "IdempotencyInFlightError", "NotAwaitedError", "SchemaMigrationError",
                 "StepJournalError", "TaskInFlightError"):  # fmt: skip
        assert getattr(relier, name) is getattr(errors, name)


def test_the_version_is_stated_once() -> None:
    assert metadata.version("relier") == relier.__version__
    other = Version("0.1.7")  # the newest of another package of this name on the public index
    assert Version(relier.__version__) > other


def test_no_text_suggests_installing_the_other_package_of_this_name() -> None:
    root = Path(__file__).parents[1]
    told = [path for folder in ("src", "docs", "examples") for path in sorted((root / folder).rglob("*.*"))]
    told += [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    wrong = [str(path) for path in told if path.suffix in {".py", ".md"} and INSTALLS.search(path.read_text())]
    assert wrong == [str(root / "src" / "relier" / "version.py")], "its docstring says why"


def test_every_extra_that_a_message_names_exists() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    source = "".join(path.read_text() for path in Path(relier.__file__ or "").parent.rglob("*.py"))
    calls = re.findall(r"how_to_install\(([^)]*)\)", source)
    named = {extra for call in calls for extra in re.findall(r"'(\w+)'", call)}
    assert {"celery", "encryption", "postgres"} <= named <= set(project["optional-dependencies"])
