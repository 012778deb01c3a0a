"""The shape of the source: class names are unique, and functions, files and folders stay small."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
LONGEST_FUNCTION = 40
LONGEST_FILE = 400
MOST_FILES = 15

NAMED_BY_DJANGO = {"Command", "Migration"}


@cache
def modules() -> dict[str, ast.Module]:
    """Return path below src -> parsed module."""
    paths = sorted((SOURCE / "relier").rglob("*.py"))
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in paths}


def classes() -> Iterator[str]:
    """Yield the names of all classes at the top level of a module."""
    for module in modules().values():
        yield from (node.name for node in module.body if isinstance(node, ast.ClassDef))


def functions() -> Iterator[tuple[str, int]]:
    """Yield `path:function` and its number of lines, for every function and method."""
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_a_class_name_exists_once() -> None:
    twice = {name for name, count in Counter(classes()).items() if count > 1}
    assert not twice - NAMED_BY_DJANGO


def test_no_function_is_long() -> None:
    assert not {name for name, lines in functions() if lines > LONGEST_FUNCTION}


def test_no_file_is_long() -> None:
    sizes = {path: len((SOURCE / path).read_text().splitlines()) for path in modules()}
    assert not {path for path, lines in sizes.items() if lines > LONGEST_FILE}


def test_no_folder_is_large() -> None:
    sizes = Counter(Path(path).parent.as_posix() for path in modules())
    assert not {folder for folder, files in sizes.items() if files > MOST_FILES}


def test_no_class_overrides_a_private_method_of_another_package() -> None:
    """Use composition instead: a private method may change without regard to other packages."""
    methods: dict[str, tuple[str, set[str]]] = {}
    classes = [(path, node) for path, module in modules().items() for node in _classes_in(module)]
    for path, node in classes:
        defined = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        methods[node.name] = (_package_of(path), {name for name in defined if _is_private(name)})
    overrides = [
        f"{path}: {node.name}.{name} overrides {base.id}.{name}"
        for path, node in classes
        for base in node.bases
        if isinstance(base, ast.Name) and base.id in methods and methods[base.id][0] != _package_of(path)
        for name in methods[node.name][1] & methods[base.id][1]
    ]
    assert overrides == []


def _classes_in(module: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))


def _package_of(path: str) -> str:
    return path.split("/")[1]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
