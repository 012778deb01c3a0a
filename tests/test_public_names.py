"""The public API: every name it lists is there, for those who run it and for those who check types."""

from __future__ import annotations

import ast
import importlib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

import relier


@pytest.mark.parametrize("name", relier.__all__)
def test_a_name_that_is_listed_can_be_imported(name: str) -> None:
    assert getattr(relier, name).__module__.startswith("relier") or name == "task_context"


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(relier.__file__ or "").read_text())
    (for_types,) = [node for node in tree.body if isinstance(node, ast.If)]
    names = [alias.name for node in for_types.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(relier.__all__)
    assert list(relier.__all__) == sorted(relier.__all__)


def test_what_a_guard_raises_is_public() -> None:
    errors = importlib.import_module("relier.errors")
    for name in ("AdmissionRejectedError", "CheckpointStoreError", "CheckpointTooLargeError", "DuplicateTaskError",
                 "IdempotencyInFlightError", "NotAwaitedError", "SchemaMigrationError",
                 "StepJournalError", "TaskInFlightError"):  # fmt: skip
        assert getattr(relier, name) is getattr(errors, name)


def test_the_version_is_stated_once() -> None:
    assert metadata.version("relier") == relier.__version__
    other = Version("0.1.7")  # the newest of another package of this name on the public index
    assert Version(relier.__version__) > other
