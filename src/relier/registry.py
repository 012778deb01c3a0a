"""The tasks known to this process, by name.

A task's name is its module plus its function name, so functions of the same name in two modules do not collide.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relier.errors import ConfigurationError, WorkerInitializationError
from relier.import_names import import_name, name_of_main

if TYPE_CHECKING:
    from relier.task import RlTask

_known: dict[str, RlTask[Any, Any]] = {}
unimportable: dict[str, str] = {}
"""Why no other process can import a task, by the task's name, until a push has warned about it."""


def register(task: RlTask[Any, Any]) -> None:
    """Register a task. A re-imported module replaces its own tasks; another function with a taken name is refused."""
    other = _known.get(task.name)
    if other is not None and _home(other) != _home(task):
        raise ConfigurationError(
            f"two tasks have the name {task.name!r}: one in {_home(other)}, one in {_home(task)}; rename one of them"
        )
    _known[task.name] = task
    if task.name == _home(task) and (why := _why_unimportable(task.fn)):
        unimportable[task.name] = why


def _why_unimportable(fn: Any) -> str:
    """Return why another process that imports the function's module does not find the task; empty if it does.

    A nested function is found if the module calls the function around it during its import, as it does now.
    """
    if fn.__module__ == "__main__" and name_of_main(sys.modules["__main__"]) == "__main__":
        return "a notebook or an interactive session"
    if "<locals>" not in fn.__qualname__:
        return ""
    frame = sys._getframe()  # noqa: SLF001 - cheaper than inspect.stack, which reads source files
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == fn.__module__:
            return ""
    return f"the function {fn.__qualname__.partition('.<locals>')[0]}"


def _home(task: RlTask[Any, Any]) -> str:
    """Return where the function is defined. A script that is both run and imported counts once."""
    return identity(task.fn)


def find(name: str) -> RlTask[Any, Any] | None:
    return _known.get(name)


def known_tasks() -> Iterator[RlTask[Any, Any]]:
    return iter(_known.values())


def namesakes(name: str) -> list[str]:
    """Return tasks with the same function name in other modules, for a "did you mean"."""
    last = name.rpartition(".")[2]
    return sorted(known for known in _known if known != name and known.rpartition(".")[2] == last)


def identity(fn: Any) -> str:
    """Return module and name. A running script gets the name by which a worker would import it."""
    module = name_of_main(sys.modules["__main__"]) if fn.__module__ == "__main__" else fn.__module__
    return f"{module}.{fn.__qualname__}"


def load(modules: Iterable[str]) -> None:
    """Import the modules that hold the tasks. `package.module`, or a file `path/to/module.py`."""
    _find_in(os.getcwd())
    for module in modules:
        if module.endswith(".py"):
            _load_file(module)
        else:
            _load_module(module, module)


def _load_file(given: str) -> None:
    """Import a file under its import name, so that its tasks have the same names as in producers."""
    file = Path(given).resolve()
    if not file.is_file():
        raise WorkerInitializationError(
            f"there is no file {given!r} in {os.getcwd()}; check the path, or give a module name as in an import"
        )
    folder, name = import_name(file)
    _find_in(str(folder))
    taken_by = getattr(_load_module(name, given), "__file__", None)
    if taken_by is None or Path(taken_by).resolve() != file:
        raise WorkerInitializationError(
            f"the file {given!r} cannot be imported: another module has the name {name!r} ({taken_by or 'built-in'}); "
            f"rename one of them, or put it into a package (a folder with an __init__.py)"
        )


def _find_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load_module(name: str, given: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        what, why = f"the module {given!r} cannot be imported", f"{type(error).__name__}: {error}"
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise WorkerInitializationError(
                f"{what} ({why}); give its name as in an import statement, relative to the working directory "
                f"({os.getcwd()})"
            ) from error
        raise WorkerInitializationError(f"{what}: {why} ({_place_of(error)}); correct that and start again") from error


def _place_of(error: Exception) -> str:
    """Return the last line of user code in the traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    others = (
        str(Path(__file__).parent),
        "<frozen ",
        *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
    )
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(others)]
    at = (theirs or frames)[-1]
    return f"{at.filename}, line {at.lineno}"
