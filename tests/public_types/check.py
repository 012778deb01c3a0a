"""Check how type checkers see the public API: `make types`.

assert_types.py has no errors; type_errors.py has an error on each line marked `# wrong`, and no others. Both are
checked by mypy --strict and by pyright's checker (basedpyright, which brings its own Node.js).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "assert_types.py", HERE / "type_errors.py"
Errors = dict[str, dict[int, str]]  # by file, by line


def by_mypy() -> Errors:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(RIGHT), str(WRONG)]
    command += ["--explicit-package-bases", "--follow-imports=silent"]
    env = os.environ | {"MYPYPATH": f"{ROOT / 'src'}:{ROOT}"}
    told = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    found: Errors = {RIGHT.name: {}, WRONG.name: {}}
    for file, line, message in re.findall(r"(\w+\.py):(\d+): error: (.*)", told.stdout):
        found.setdefault(file, {})[int(line)] = message
    if told.returncode > 1 or not told.stdout:
        raise SystemExit(told.stdout + told.stderr)
    return found


def by_pyright() -> Errors:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "pyrightconfig.json"
        options = {"typeCheckingMode": "strict", "include": [str(HERE)], "reportUnusedCoroutine": False}
        config.write_text(json.dumps(options | {"reportUnusedParameter": False}))
        command = [sys.executable, "-m", "basedpyright", "--project", str(config), "--outputjson"]
        command += ["--pythonpath", sys.executable]
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found: Errors = {RIGHT.name: {}, WRONG.name: {}}
    for each in json.loads(told.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found.setdefault(Path(each["file"]).name, {})[line] = each["message"].replace("\n", " ")
    return found


def complaints(checker: str, found: Errors) -> list[str]:
    marked = {n for n, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}
    right, wrong = found[RIGHT.name], found[WRONG.name]
    missing = sorted(marked - set(wrong))
    return [
        *(f"{checker}: {RIGHT.name}:{line}: {right[line]}" for line in sorted(right)),
        *(f"{checker}: {WRONG.name}:{line}: no error was found on a marked line" for line in missing),
        *(f"{checker}: {WRONG.name}:{line}: {wrong[line]}" for line in sorted(set(wrong) - marked)),
    ]


def main() -> None:
    checkers: dict[str, Callable[[], Errors]] = {"mypy": by_mypy, "pyright": by_pyright}
    told = [line for name, check in checkers.items() for line in complaints(name, check())]
    print("\n".join(told) or "The public types hold for mypy --strict and pyright.")
    raise SystemExit(bool(told))


if __name__ == "__main__":
    main()
