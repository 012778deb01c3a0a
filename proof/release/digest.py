"""What a range of seeds proves: a digest of the scripts, and of all that decides what a schedule does and finds.

Two ranges of seeds add up if every schedule of the first one would run the same way, and be judged the same way, on the
code of the second one. So the digest covers the scripts, the model, the checker and the simulator, and the modules of
relier that a schedule runs: the moves, the replies, workflows, schedules. A test runs schedules and compares.

It leaves out what decides nothing in a schedule: mutants and directed schedules (they show how good the checks are, not
what holds), messages of errors, settings, the rest of relier, the version of Python. A change of comments, docstrings
or layout is no change: a Lua file counts as its tokens, a Python file as its syntax tree without docstrings.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROVED = (
    "proof/model",
    "proof/checker",
    "proof/simulator",
    "src/relier/ledger",
    "src/relier/envelope.py",
    "src/relier/schedules/changes.py",
    "src/relier/schedules/definition.py",
    "src/relier/schedules/firing.py",
    "src/relier/schedules/planning.py",
    "src/relier/schedules/timings.py",
    "src/relier/slo/buckets.py",
    "src/relier/states.py",
    "src/relier/store/call.py",
    "src/relier/workflows/plan.py",
)
# The lines `-- use: …` and `-- here: …` are comments to Lua, but they decide what a script consists of.
LUA_TOKEN = re.compile(
    r"""
      (?P<directive> --[ ](?:use|here):[^\n]* )
    | (?P<comment>   --\[(?P<level>=*)\[.*?\](?P=level)\] | --[^\n]* )
    | (?P<text>      "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \[(?P<depth>=*)\[.*?\](?P=depth)\] )
    | (?P<word>      \w+ )
    | (?P<sign>      \.\.\.? | [=~<>]= | \S )
    """,
    re.VERBOSE | re.DOTALL,
)


def digest_of(root: Path = ROOT) -> str:
    """Return the digest of the code below a root: the same on every machine and for every version of Python."""
    found = hashlib.sha256()
    for path in proved_files(root):
        text = path.read_text(encoding="utf-8")
        meaning = lua_meaning(text) if path.suffix == ".lua" else python_meaning(text)
        found.update(f"{path.relative_to(root).as_posix()}\0{meaning}\0".encode())
    return found.hexdigest()


def proved_files(root: Path = ROOT) -> Iterator[Path]:
    for name in PROVED:
        path = root / name
        yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in {".lua", ".py"})


def lua_meaning(text: str) -> str:
    """Return the tokens of a Lua file, without its comments, but with its directives."""
    return "\n".join(match[0] for match in LUA_TOKEN.finditer(text) if match["comment"] is None)


def python_meaning(text: str) -> str:
    """Return the syntax tree of a Python file without its docstrings, as text that no version of Python changes."""
    return repr(_shape(ast.parse(text)))


def _shape(node: Any) -> Any:
    if isinstance(node, list):
        return [_shape(each) for each in node]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _shape(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        bare = [_shape(each) for each in node.body if not _is_text(each)]
        fields = [(name, bare if name == "body" else value) for name, value in fields]
    return type(node).__name__, fields


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a string and nothing else: a docstring, or one below a field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
