"""Push tasks until stopped, and note each one that was accepted: `python -m tests.upgrade.produce FILE`."""

from __future__ import annotations

import itertools
import os
import sys

from tests.upgrade.shop import KINDS, plain


def note(file: int, *lines: str) -> None:
    """Append whole lines in one write. A producer that is killed leaves no half of one."""
    os.write(file, "".join(f"{line}\n" for line in lines).encode())


def main(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for n in itertools.count():
        kind = KINDS[n % len(KINDS)]
        number = os.getpid() * 100_000 + n
        note(file, f"{kind.push(number).id} {number}")
        note(file, f"{plain.with_options(delay=0.3, priority=5).push(number).id} {number}")
        many = [number, number + 1, number + 2]
        note(
            file,
            *(
                f"{receipt.id} {each}"
                for receipt, each in zip(plain.push_many([(m,) for m in many]), many, strict=True)
            ),
        )


if __name__ == "__main__":
    main(sys.argv[1])
