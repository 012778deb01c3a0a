"""Write the reference pages that are generated from the code: settings, errors, the command line.

python docs/generate.py            write docs/reference/{settings,errors,cli}.md
python docs/generate.py --check    exit with 1 if a page is out of date
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

Each setting is an environment variable. In code it is a field of `relier.Settings`, in lower case and without the
prefix: `Settings(heartbeat_ttl=10)`. In a Django project it may also be a key of
[`settings.RELIER`](../how-to/django.md#settings), which the environment overrides. Settings are read and validated
once, at start, and do not change while a process runs. An invalid value is refused with the name of its variable.
`rl doctor` shows which settings differ from their defaults. It and every worker that starts report variables
`RELIER_…` that no setting reads.

Times are in seconds. Workers and producers of one namespace must agree on `RELIER_NAMESPACE`, `RELIER_KEY_PREFIX` and
`RELIER_REDIS_URL`. All other settings may differ between processes.

| variable | default | allowed | meaning |
|---|---|---|---|
"""

OUTBOX = f"""
`{settings.OUTBOX_DATABASE}` is not a setting. It sets the option `--database` of
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
    """Return field name -> the docstring below it in the source."""
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
    """Return the allowed values of a field of the JSON schema. An optional field has its type under anyOf."""
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "pattern" in schema:
        return f"`{schema['pattern']}`"
    limits = [f"{sign} {schema[word]:,g}" for word, sign in LIMITS.items() if word in schema]
    return ", ".join(limits) or {"boolean": "`true`, `false`"}.get(schema["type"], "text")


# --- errors ------------------------------------------------------------------------------------------------------

ERRORS = """# Errors

Every error that Relier raises is a `RelierError`. Its message says what happened, why, and what to do. Exceptions of
tasks are not wrapped: `receipt.result()` raises the task's own exception if its class is imported in the caller's
process, and `TaskDeadError` otherwise.

```
{tree}
```

| error | meaning | also a | attributes | import from |
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
    """Yield all error classes in the order of the file."""
    for value in vars(errors).values():
        if inspect.isclass(value) and issubclass(value, errors.RelierError):
            yield value


def builtin_of(cls: type) -> str:
    other = [base.__name__ for base in cls.__bases__ if base.__module__ == "builtins" and base is not Exception]
    return ", ".join(f"`{name}`" for name in other)


def carried(cls: type) -> str:
    """Return the attributes that the class or its constructor defines."""
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

This page shows the output of `rl COMMAND --help`. `rl run-resurrector` is an alias of `rl resurrector`. A group without
a command runs its first one: `rl tasks` is `rl tasks list`. The exit codes below apply to all commands except
`rl worker`; see [running in production](../how-to/production.md#signals-and-exit-codes) for those of a worker.
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
