"""Assemble the Lua scripts, once, and identify them by their SHA1.

A file names every library whose names it uses. `lib/<name>.lua` is inserted once, with the libraries it uses itself:

    -- use: time record        inserted before the file
    -- here: enter             inserted at this line, so that paths that end before it do not pay for setting it up
      -- here: enter           indented, in a function or a branch: in scope only there

A word in capitals that names a key (`TASK .. id`) is replaced by that key's Lua expression, in which `P` is KEYS[1].
The name of a default (`RESULT_TTL`) is replaced by its value, and SCRIPT by the script's own name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DIRECTIVE = re.compile(r"^( *)-- (use|here): (.+)\n", re.MULTILINE)
CAPITALS = re.compile(r"\b[A-Z][A-Z0-9_]*\b")
SCRIPT = re.compile(r"SCRIPT(?<!\wSCRIPT)\b")  # begins with a plain word, which is searched for ten times faster


@dataclass(frozen=True, slots=True)
class Script:
    """Hold one assembled script."""

    name: str
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Scripts:
    """Hold all scripts of one folder.

    `spelled` maps the capital name of a key to its Lua expression. `replace` replaces the text of single files.
    """

    def __init__(
        self, folder: Path, spelled: Mapping[str, str] | None = None, *, replace: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._replace = dict(replace or {})
        self._spelled = dict(spelled or {})
        self._files: dict[str, list[str]] = {}
        self._scripts = {path.stem: self._assemble(path.stem) for path in sorted(folder.glob("*.lua"))}

    def __getitem__(self, name: str) -> Script:
        return self._scripts[name]

    def names(self) -> frozenset[str]:
        return frozenset(self._scripts)

    def _assemble(self, name: str) -> Script:
        text = "local P = KEYS[1]\n" + self._expand(name, set())
        return Script(name, SCRIPT.sub(f"'{name}'", text) if self._spelled else text)

    def _parts(self, name: str) -> list[str]:
        """Return a file with its words in capitals replaced: a text, then for each directive its indent, kind and words
        and the text up to the next one. Many scripts use the same library, so each file is read and split once."""
        if name not in self._files:
            text = self._replace.get(name) or (self._folder / f"{name}.lua").read_text(encoding="utf-8")
            text = CAPITALS.sub(lambda word: self._spelled.get(word[0], word[0]), text)
            self._files[name] = DIRECTIVE.split(text)
        return self._files[name]

    def _expand(self, name: str, known: set[str]) -> str:
        """Return the text of a file with its directives resolved. `known`: libraries that are already in scope.

        A library is in scope from the beginning of its own text on, so two libraries may use each other if one of them
        does so inside a function.
        """
        first, *parts = self._parts(name)
        directives = list(zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True))
        texts = [self._libraries(words, known) for _, kind, words, _ in directives if kind == "use"]
        if name.startswith("lib/"):
            known.add(name.removeprefix("lib/"))
        texts.append(first)
        for indent, kind, words, following in directives:
            if kind == "here":
                texts.append(self._libraries(words, set(known) if indent else known))
            texts.append(following)
        return "".join(texts)

    def _libraries(self, words: str, known: set[str]) -> str:
        text = ""
        for word in words.split():
            if word not in known:
                text += self._expand(f"lib/{word}", known) + "\n"
        return text
