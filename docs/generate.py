"""Writes the reference pages that follow from the code: settings, errors, the command line.

python docs/generate.py            write docs/reference/{settings,errors,cli}.md
python docs/generate.py --check    exit with 1 where a page is not what it would write
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

import relier
from relier import errors, settings
from relier.cli.main import rl
from relier.settings import Settings

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 100


# --- settings ----------------------------------------------------------------------------------------------------

SETTINGS = """# Settings

Each setting is an environment variable. In code it is a field of `relier.Settings`, without the prefix and in small
letters: `Settings(heartbeat_ttl=10)`. They are read once, checked at start, and never change while a process runs; a
value that does not fit is refused with the name of the variable. `rl doctor` shows which ones are not the defaults, and
finds variables with a typo.

Times are seconds. Workers and producers of one namespace should agree on `RELIER_NAMESPACE`, `RELIER_KEY_PREFIX` and
`RELIER_REDIS_URL`; the rest each process may have as it likes.

| variable | default | allowed | what it is |
|---|---|---|---|
"""

OUTBOX = f"""
`{settings.OUTBOX_DATABASE}` is not among them: it is the option `--database` of
[`rl outbox`](cli.md#rl-outbox), and nothing else reads it.
"""


def settings_page() -> str:
    texts, schemas = texts_below_fields(Settings), Settings.model_json_schema()["properties"]
    rows = [
        f"| `RELIER_{name.upper()}` | {default_of(field.default)} | {allowed(schemas[name])} | {texts[name]} |"
        for name, field in Settings.model_fields.items()
    ]
    return SETTINGS + "\n".join(rows) + "\n" + OUTBOX


def texts_below_fields(cls: type) -> dict[str, str]:
    """Field name -> the text that stands below it in the source."""
    (found,) = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(settings)))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    texts = {}
    for field, below in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            texts[field.target.id] = " ".join(ast.literal_eval(below.value).split())
    return texts


def default_of(value: Any) -> str:
    if value in (None, "", SecretStr("")):
        return "not set"
    if isinstance(value, float):
        value = f"{value:g}" if value < 1e6 else f"{value:.0f}"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}


def allowed(schema: dict[str, Any]) -> str:
    """What a field of the JSON schema may be. A field that may be unset says the rest under anyOf."""
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "pattern" in schema:
        return f"`{schema['pattern']}`"
    limits = [f"{sign} {schema[word]:,g}" for word, sign in LIMITS.items() if word in schema]
    return ", ".join(limits) or {"boolean": "`true`, `false`"}.get(schema["type"], "text")


# --- errors ------------------------------------------------------------------------------------------------------

ERRORS = """# Errors

Everything Relier raises on purpose is a `RelierError`. Its message says what happened, why, and what to do. What a
task raises itself is not wrapped: `receipt.result()` raises the task's own exception where its class is imported in the
caller's process, and `TaskDeadError` elsewhere.

```
{tree}
```

| error | what it means | also a | carries | from |
|---|---|---|---|---|
"""


def errors_page() -> str:
    about = inspect.getdoc(errors) or ""
    tree = about[about.index("RelierError\n") : about.rindex("\n\n")]
    rows = [
        (f"`{cls.__name__}`", " ".join((cls.__doc__ or "").split()), builtin_of(cls), carried(cls), home_of(cls))
        for cls in error_classes()
    ]
    return ERRORS.format(tree=tree) + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def error_classes() -> Iterator[type]:
    """In the order of the file, which is that of the tree."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.RelierError):
            yield value


def builtin_of(cls: type) -> str:
    other = [base.__name__ for base in cls.__bases__ if base.__module__ == "builtins" and base is not Exception]
    return ", ".join(f"`{name}`" for name in other)


def carried(cls: type) -> str:
    """The attributes its class or its constructor names."""
    names: dict[str, None] = {}
    for owner in (owner for owner in cls.__mro__ if issubclass(owner, errors.RelierError)):
        names |= dict.fromkeys(inspect.get_annotations(owner))
        if "__init__" in vars(owner):
            source = inspect.getsource(owner.__init__)
            names |= dict.fromkeys(name for name in inspect.signature(owner).parameters if f"self.{name} =" in source)
    return ", ".join(f"`{name}`" for name in names)


def home_of(cls: type) -> str:
    return "`relier`" if cls.__name__ in relier.__all__ else "`relier.errors`"


# --- the command line --------------------------------------------------------------------------------------------

CLI = """# The command `rl`

What `rl COMMAND --help` prints. `rl run-resurrector` is another name of `rl resurrector`. Commands that look or change
something end with the exit codes shown first; how `rl worker` ends is told in
[running in production](../how-to/production.md#signals-and-exit-codes).
"""


def cli_page() -> str:
    return CLI + "".join(f"\n## {path}\n\n```\n{text}\n```\n" for path, text in helps(rl, None, "rl"))


def helps(command: click.Command, parent: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    ctx = click.Context(command, parent, name, terminal_width=WIDTH, **(command.context_settings if not parent else {}))
    yield ctx.command_path, command.get_help(ctx)
    if isinstance(command, click.Group):
        for word in command.list_commands(ctx):
            below = command.get_command(ctx, word)
            if below is not None:
                yield from helps(below, ctx, word)


# --- writing -----------------------------------------------------------------------------------------------------

PAGES = {"settings.md": settings_page, "errors.md": errors_page, "cli.md": cli_page}


def main() -> int:
    stale = []
    for name, page in PAGES.items():
        file, text = REFERENCE / name, page()
        if not file.exists() or file.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                file.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not up to date: {', '.join(stale)}; run `python docs/generate.py`")
        return 1
    print(f"written: {', '.join(stale)}" if stale else "everything is up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
