"""Render the chart in deploy/helm without helm: the part of Go's templates that its files use, and nothing else.

An action or function that is not known here raises, so the chart cannot use what the tests do not check.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"\s*\{\{-\s*(?P<trims>.*?)\s*(?:-\}\}\s*|\}\})|\{\{\s*(?P<keeps>.*?)\s*\}\}", re.DOTALL)
Node = str | tuple[str, list["Node"]]  # text, or an action with the nodes up to its `end`


def indent(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line else line for line in text.splitlines())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: int(a) + int(b),
    "default": lambda fallback, value: value or fallback,
    "eq": lambda a, b: a == b,
    "join": lambda by, values: by.join(values),
    "nindent": lambda spaces, text: "\n" + indent(text, int(spaces)),
    "quote": lambda value: json.dumps(str(value)),
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=False).rstrip("\n"),
}


class Chart:
    """A chart's templates, with values."""

    def __init__(self, folder: Path, release: str = "shop") -> None:
        self.folder = folder
        self.values: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text())
        about = yaml.safe_load((folder / "Chart.yaml").read_text())
        self._root = {
            "Values": self.values,
            "Release": {"Name": release, "Service": "Helm"},
            "Chart": {"AppVersion": about["appVersion"]},
        }
        self._parts: dict[str, list[Node]] = {}
        self._run(parse((folder / "templates" / "_helpers.tpl").read_text()), self._root, {})

    def documents(self) -> list[dict[str, Any]]:
        """Return every object that the chart makes."""
        texts = [
            self._run(parse(file.read_text()), self._root, {"$": self._root})
            for file in sorted((self.folder / "templates").glob("*.yaml"))
        ]
        return [found for text in texts for found in yaml.safe_load_all(text) if found]

    def _run(self, nodes: list[Node], dot: Any, names: dict[str, Any]) -> str:
        out = ""
        for node in nodes:
            if isinstance(node, str):
                out += node
                continue
            action, inner = node
            word, _, rest = action.partition(" ")
            if word == "define":
                self._parts[json.loads(rest)] = inner
            elif word == "if":
                out += self._run(inner, dot, names) if self._value(rest, dot, names) else ""
            elif word == "range":
                out += self._range(rest, inner, dot, names)
            else:
                out += str(self._value(action, dot, names))
        return out

    def _range(self, over: str, inner: list[Node], dot: Any, names: dict[str, Any]) -> str:
        if ":=" not in over:
            return "".join(self._run(inner, each, names) for each in self._value(over, dot, names))
        left, _, right = over.partition(":=")
        key, value = (name.strip() for name in left.split(","))
        pairs = self._value(right.strip(), dot, names).items()
        return "".join(self._run(inner, dot, names | {key: one, value: other}) for one, other in pairs)

    def _value(self, expression: str, dot: Any, names: dict[str, Any]) -> Any:
        value: list[Any] = []
        for step in expression.split("|"):
            words = shlex.split(step.strip(), posix=False)
            if words[0] == "include":
                value = [self._run(self._parts[json.loads(words[1])], self._term(words[2], dot, names), names).strip()]
            elif words[0] in FUNCTIONS:
                value = [FUNCTIONS[words[0]](*(self._term(word, dot, names) for word in words[1:]), *value)]
            else:
                value = [self._term(words[0], dot, names)]
        return value[0]

    def _term(self, word: str, dot: Any, names: dict[str, Any]) -> Any:
        if word.startswith('"') or word.isdigit():
            return json.loads(word)
        if word in names:
            return names[word]
        base, _, path = word.partition(".")
        found = names[base] if base else dot
        for part in filter(None, path.split(".")):
            found = found[part]  # a KeyError: values.yaml has no such value
        return found


def parse(text: str) -> list[Node]:
    """Return the nodes of a template."""
    stack: list[list[Node]] = [[]]
    at = 0
    for match in ACTION.finditer(text):
        action = match["trims"] if match["trims"] is not None else match["keeps"]
        stack[-1].append(text[at : match.start()])
        at = match.end()
        if action == "end":
            stack.pop()
        else:
            node: Node = (action, [])
            stack[-1].append(node)
            if action.split()[0] in {"if", "range", "define"}:
                stack.append(node[1])
    stack[-1].append(text[at:])
    assert len(stack) == 1, "an action is not closed by `end`"
    return stack[0]
