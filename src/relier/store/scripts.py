"""Lua scripts by name: assembled once, identified by their SHA1.

A script file opens with a header that names what it builds on:

    -- keys: task payload ready bell        names from the key schema; each becomes a Lua local
    -- use: time record                     library files of the same folder (lib/<name>.lua), in this order

The assembled text is: the key locals, the libraries (each with its own `keys:` and `use:` lines), then the script.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HEADER = re.compile(r"^-- (keys|use): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One assembled script."""

    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Scripts:
    """All scripts of one folder. `locals_of` maps a key name to the Lua expression that spells it."""

    def __init__(
        self, folder: Path, locals_of: Mapping[str, str], *, replace: Mapping[str, str] | None = None, prelude: str = ""
    ) -> None:
        self._folder = folder
        self._locals_of = locals_of
        self._prelude = prelude
        self._replace = dict(replace or {})
        self._scripts = {path.stem: self._assemble(path.stem) for path in sorted(folder.glob("*.lua"))}

    def __getitem__(self, name: str) -> Script:
        return self._scripts[name]

    def names(self) -> frozenset[str]:
        return frozenset(self._scripts)

    def _source(self, name: str) -> str:
        path = self._folder / f"{name}.lua"
        return self._replace[name] if name in self._replace else path.read_text()

    def _assemble(self, name: str) -> Script:
        keys: list[str] = []
        libraries: list[str] = []
        self._collect(name, keys, libraries)
        spelled = "".join(f"local {key} = {self._locals_of[key]}\n" for key in keys)
        body = "".join(self._source(f"lib/{library}") + "\n" for library in libraries)
        return Script(name, self._prelude + spelled + body + self._source(name))

    def _collect(self, name: str, keys: list[str], libraries: list[str]) -> None:
        for kind, words in HEADER.findall(self._source(name)):
            for word in words.split():
                if kind == "keys":
                    if word not in keys:
                        keys.append(word)
                elif word not in libraries:
                    self._collect(f"lib/{word}", keys, libraries)
                    libraries.append(word)
