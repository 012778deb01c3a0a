"""Under which name a file is imported, also the script that runs here: what it defines must be found by a worker that
imports it, and the other way round."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from types import ModuleType


def import_name(file: Path) -> tuple[Path, str]:
    """The folder from which a file is imported, and under which name: packages above it count, below where we are."""
    parts, folder = [] if file.name == "__init__.py" else [file.stem], file.parent
    while folder != Path.cwd() and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts) or file.stem


@lru_cache(maxsize=4)
def name_of_main(main: ModuleType) -> str:
    """What others call the module `__main__`."""
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return import_name(Path(file).resolve())[1] if file else "__main__"
