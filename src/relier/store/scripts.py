"""Lua scripts by name: assembled once, identified by their SHA1.

A script names the libraries it builds on (`lib/<name>.lua`, each once, with what they in turn use):

    -- use: time record        at the top: they stand before the script
    -- here: enter             inside a function: they stand there, so a rare path costs the common one nothing
    -- each: tally = {}        a statement that a library needs at the start of each call

A word in capitals that names a key (`TASK .. id`) is replaced by how that key is spelled, `P` being KEYS[1]: scripts
spell none. One source serves two ways of running it: a script of its own (EVALSHA, every server), and one function of a
library (FCALL, servers that have functions), where what stands before the body is done once and not at every call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DIRECTIVE = re.compile(r"^ *-- (use|here|each): (.+)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One assembled script. `function` is its name in the library."""

    name: str
    text: str
    function: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", _sha(self.text))


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class _Parts:
    """A script in the making: libraries, statements for each call, body."""

    known: set[str] = field(default_factory=set)
    libraries: str = ""
    each: str = ""
    body: str = ""


class Scripts:
    """All scripts of one folder. `spelled` maps the capital name of a key to its Lua expression; `replace` swaps the
    text of single files."""

    def __init__(
        self, folder: Path, spelled: Mapping[str, str] | None = None, *, replace: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._replace = dict(replace or {})
        self._spelled = dict(spelled or {})
        self._names = re.compile(rf"\b({'|'.join(self._spelled)})\b") if self._spelled else None
        parts = {path.stem: self._parts(path.stem) for path in sorted(folder.glob("*.lua"))}
        functions = "".join(_function(name, part) for name, part in parts.items())
        version = _sha(functions)[:12]
        self.library = f"#!lua name=relier_{version}\nlocal KEYS, ARGV, P\n" + functions.replace("@", version)
        self._scripts = {name: Script(name, _text(part), f"rl_{version}_{name}") for name, part in parts.items()}

    def __getitem__(self, name: str) -> Script:
        return self._scripts[name]

    def names(self) -> frozenset[str]:
        return frozenset(self._scripts)

    def _parts(self, name: str) -> _Parts:
        parts = _Parts()
        parts.body = self._expand(name, parts)
        return parts

    def _expand(self, name: str, parts: _Parts) -> str:
        """The text of a file; what it uses goes before it, what it needs at each call is gathered."""
        source = self._replace.get(name) or (self._folder / f"{name}.lua").read_text()

        def resolve(match: re.Match[str]) -> str:
            kind, words = match.groups()
            if kind == "each":
                parts.each += f"{words}\n"
            elif kind == "here":
                inner = _Parts(known=set(parts.known))
                self._include(words, inner)
                return inner.libraries + inner.each
            return ""

        for kind, words in DIRECTIVE.findall(source):
            if kind == "use":
                self._include(words, parts)
        text = DIRECTIVE.sub(resolve, source)
        return self._names.sub(lambda match: self._spelled[match[1]], text) if self._names else text

    def _include(self, words: str, parts: _Parts) -> None:
        for word in words.split():
            if word not in parts.known:
                parts.known.add(word)
                text = self._expand(f"lib/{word}", parts)  # first: it may add libraries of its own
                parts.libraries += f"{text}\n"


def _text(parts: _Parts) -> str:
    return f"local P = KEYS[1]\n{parts.libraries}{parts.each}{parts.body}"


def _function(name: str, parts: _Parts) -> str:
    """One function of the library; `@` stands for the library's version."""
    begin = "KEYS, ARGV, P = keys, args, keys[1]\n"
    return (
        f"do\n{parts.libraries}redis.register_function('rl_@_{name}', function(keys, args)\n"
        f"{begin}{parts.each}{parts.body}\nend)\nend\n"
    )
