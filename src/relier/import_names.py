"""Find the name by which a file is imported, including the running script, and import what a setting names.

A worker that imports the script must find what the script defined under the same name, and vice versa.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import lru_cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from relier.errors import ConfigurationError


def import_name(file: Path) -> tuple[Path, str]:
    """Return the folder from which a file is imported and its module name, including packages below the working
    directory."""
    parts, folder = [] if file.name == "__init__.py" else [file.stem], file.parent
    while folder != Path.cwd() and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts) or file.stem


@lru_cache(maxsize=4)
def name_of_main(main: ModuleType) -> str:
    """Return the name by which others import the module `__main__`, or `__main__` if they cannot."""
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return import_name(Path(file).resolve())[1] if file and file != "<stdin>" else "__main__"


def imported(path: str, setting: str) -> Any:
    """Return the object that a setting names as `package.module:name`."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:  # so that the application's modules are found, as in a worker
        sys.path.insert(0, os.getcwd())
    try:
        return reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:
        raise ConfigurationError(
            f"{setting}={path}: it cannot be imported ({type(error).__name__}: {error}); write "
            f"package.module:function, relative to the working directory ({os.getcwd()})"
        ) from error
