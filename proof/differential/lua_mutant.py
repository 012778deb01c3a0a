"""One seeded bug in a script."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import relier.ledger.ledger

LUA = Path(relier.ledger.ledger.__file__).parent / "lua"


@dataclass(frozen=True, slots=True)
class LuaMutant:
    """One bug to put into a Lua script. `file` is the script's name without its ending, `lib/<name>` for a library."""

    name: str
    file: str
    old: str
    new: str

    @property
    def keyword(self) -> str:
        return self.file.replace("/", "__")

    def text_of(self) -> str:
        text = (LUA / f"{self.file}.lua").read_text(encoding="utf-8")
        if self.old not in text:
            raise LookupError(f"{self.file}.lua does not hold {self.old!r} any more: mutant {self.name} needs another")
        return text.replace(self.old, self.new, 1)
