"""Each script can be read by itself: every name in it is declared there, or by a library that its header names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from luaparser import ast, astnodes

import relier.ledger
from relier.cli.namespace_reads import load_read_scripts
from relier.ledger import defaults, keys
from relier.ledger.events.writing import EventWriting
from relier.ledger.ledger import load_scripts
from relier.ledger.outcomes.writing import OutcomeCounting
from relier.store.scripts import DIRECTIVE

SOURCE = Path(relier.ledger.__file__ or "").parents[1]
FILES = {
    str(path.relative_to(folder).with_suffix("")): path.read_text()
    for folder in (SOURCE / "ledger" / "lua", SOURCE / "cli" / "lua")
    for path in sorted(folder.rglob("*.lua"))
}
LANGUAGE = {
    "redis",
    "cjson",
    "cmsgpack",
    "string",
    "table",
    "math",
    "type",
    "tonumber",
    "tostring",
    "ipairs",
    "pairs",
    "unpack",
    "pcall",
}
GIVEN = LANGUAGE | {"KEYS", "ARGV", "P", "SCRIPT"} | keys.SPELLED.keys() | defaults.SPELLED.keys()
GIVEN |= EventWriting().spelled().keys() | OutcomeCounting().spelled().keys()


class Names:
    """The names that a file declares at its top level, and those that it uses without declaring them."""

    def __init__(self, text: str) -> None:
        self.free: set[str] = set()
        self.assigned: set[str] = set()
        self._scopes: list[set[str]] = [set()]
        self._visit(ast.parse(text).body.body)
        self.declared = self._scopes[0]

    def _knows(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _inside(self, names: set[str], *nodes: Any) -> None:
        self._scopes.append(names)
        for node in nodes:
            self._visit(node)
        self._scopes.pop()

    def _visit(self, node: Any) -> None:
        if isinstance(node, list):
            for one in node:
                self._visit(one)
        elif isinstance(node, astnodes.Node):
            getattr(self, f"_visit_{type(node).__name__.lower()}", self._visit_parts)(node)

    def _visit_parts(self, node: astnodes.Node) -> None:
        for name, value in vars(node).items():
            if not name.startswith("_"):
                self._visit(value)

    def _visit_name(self, node: astnodes.Name) -> None:
        if not self._knows(node.id):
            self.free.add(node.id)

    def _visit_localassign(self, node: astnodes.LocalAssign) -> None:
        self._visit(node.values)
        self._scopes[-1] |= {target.id for target in node.targets}

    def _visit_assign(self, node: astnodes.Assign) -> None:
        self._visit_parts(node)
        self.assigned |= {one.id for one in node.targets if isinstance(one, astnodes.Name) and not self._knows(one.id)}

    def _visit_localfunction(self, node: astnodes.LocalFunction) -> None:
        self._scopes[-1].add(node.name.id)
        self._visit_anonymousfunction(node)

    def _visit_anonymousfunction(self, node: Any) -> None:
        self._inside({one.id for one in node.args if isinstance(one, astnodes.Name)}, node.body)

    def _visit_forin(self, node: astnodes.Forin) -> None:
        self._visit(node.iter)
        self._inside({one.id for one in node.targets}, node.body)

    def _visit_fornum(self, node: astnodes.Fornum) -> None:
        self._visit([node.start, node.stop, node.step])
        self._inside({node.target.id}, node.body)

    def _visit_index(self, node: astnodes.Index) -> None:
        self._visit(node.value)
        if node.notation is astnodes.IndexNotation.SQUARE:
            self._visit(node.idx)

    def _visit_field(self, node: astnodes.Field) -> None:
        self._visit([node.key, node.value] if node.between_brackets else node.value)

    def _visit_block(self, node: astnodes.Block) -> None:
        self._inside(set(), node.body)


@cache
def names_of(name: str) -> Names:
    """Return the names of one file. Parsing all files takes seconds, so this is not done while tests are collected."""
    return Names(FILES[name])


def libraries(name: str) -> set[str]:
    return {word for *_, words in DIRECTIVE.findall(FILES[name]) for word in words.split()}


@pytest.mark.parametrize("name", FILES)
def test_every_name_is_declared_here_or_by_a_library_that_the_file_names(name: str) -> None:
    brought = {word for library in libraries(name) for word in names_of(f"lib/{library}").declared}
    assert names_of(name).free - GIVEN - brought == set()
    assert names_of(name).assigned == set(), "a variable of another file, or a global"


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_a_library_that_it_does_not_use(name: str) -> None:
    unused = {lib for lib in libraries(name) if not names_of(f"lib/{lib}").declared & names_of(name).free}
    assert unused == set()


ASSEMBLED = {name: scripts[name].text for scripts in (load_scripts(), load_read_scripts()) for name in scripts.names()}


@pytest.mark.parametrize("name", sorted(ASSEMBLED))
def test_an_assembled_script_defines_every_name_it_uses(name: str) -> None:
    names = Names(ASSEMBLED[name])
    assert names.free - LANGUAGE == {"KEYS", "ARGV"} & names.free
    assert names.assigned == set()


def test_two_libraries_never_declare_the_same_name() -> None:
    seen: dict[str, str] = {}
    for name in filter(lambda name: name.startswith("lib/"), FILES):
        for word in names_of(name).declared:
            assert seen.setdefault(word, name) == name


def test_default_values_of_the_ledger_are_defined_once() -> None:
    for number in defaults.SPELLED.values():
        where = [name for name, text in FILES.items() if re.search(rf"\b{number}\b", re.sub(r"--.*", "", text))]
        assert where == [] or int(number) < 100, (number, where)
