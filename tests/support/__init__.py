"""Code that the tests and the benchmarks share: servers, databases, fleets of workers, and the tasks they run.

`PYTHONPATH` is for the environment of processes that import `tests.support` too. pytest finds it by itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import relier

ROOT = Path(__file__).resolve().parents[2]
_given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
PYTHONPATH = os.pathsep.join(
    dict.fromkeys(filter(None, [str(ROOT), str(Path(relier.__file__ or "").parents[1]), *_given]))
)
