"""The tasks this process knows, by name. The name is the module and the name of the function, so that two functions of
one name in two modules share nothing."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relier.errors import ConfigurationError, WorkerInitializationError

if TYPE_CHECKING:
    from relier.task import RlTask

_known: dict[str, RlTask[Any, Any]] = {}


def register(task: RlTask[Any, Any]) -> None:
    """A module imported again replaces its own; another function under a taken name is refused."""
    other = _known.get(task.name)
    if other is not None and _home(other) != _home(task):
        raise ConfigurationError(
            f"two tasks have the name {task.name!r}: one in {_home(other)}, one in {_home(task)}; give one another name"
        )
    _known[task.name] = task


def _home(task: RlTask[Any, Any]) -> str:
    """Where its function is. A script that is run and imported as well has it twice, and both are one."""
    return identity(task.fn)


def find(name: str) -> RlTask[Any, Any] | None:
    return _known.get(name)


def known_tasks() -> Iterator[RlTask[Any, Any]]:
    return iter(_known.values())


def identity(fn: Any) -> str:
    """Module and name. A script run as a program is known by its file, so that a worker that imports it agrees."""
    module = fn.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name != "__main__":
            module = spec.name
        else:
            module = Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{fn.__qualname__}"


def load(modules: Iterable[str]) -> None:
    """Import the modules that hold the tasks. `package.module`, or a file `path/to/module.py`."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        name = module
        if module.endswith(".py"):
            file = Path(module).resolve()
            if str(file.parent) not in sys.path:
                sys.path.insert(0, str(file.parent))
            name = file.stem
        try:
            importlib.import_module(name)
        except Exception as error:
            raise WorkerInitializationError(
                f"the module {module!r} cannot be imported ({type(error).__name__}: {error}); name it as you would in "
                f"an import statement, from the folder you start in ({os.getcwd()})"
            ) from error
