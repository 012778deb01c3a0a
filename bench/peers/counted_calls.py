"""Run `rl` and count the function calls of its main thread: `python -m bench.peers.counted_calls FILE worker …`.

On a machine that does other work, too, CPU times scatter, and the number of calls stays the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    from relier.cli.main import rl

    file, *arguments = sys.argv[1:]
    calls, leave = 0, os._exit

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def write_and_leave(code: int) -> None:
        sys.setprofile(None)
        Path(file).write_text(str(calls))
        leave(code)

    os._exit = write_and_leave  # type: ignore[assignment]
    sys.setprofile(count)
    try:
        rl(arguments)
    finally:
        write_and_leave(0)


if __name__ == "__main__":
    main()
