"""Write the reference pages that are generated from the code: settings, errors, names, keys, commands, metrics, events.

python docs/generate.py            write docs/reference/{settings,errors,api,keys,cli,metrics,events}.md
python docs/generate.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin

import click
import msgspec
from draw_states import states_svg

import relier
from relier import errors, settings
from relier.cli.main import rl
from relier.ledger.events.records import KINDS
from relier.ledger.keys import SCHEMA
from relier.monitoring import series
from relier.monitoring.meter import BOUNDS
from relier.monitoring.series import MetricSeries
from relier.outbox.relay.metrics import outbox_series
from relier.settings import DEFAULTS, TYPES, Settings
from relier.settings.values import NO_SECRET, Secret, plain_type

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
{", ".join(f"`RELIER_{name}`" for name in settings.BACKUP_OPTIONS)} set the options of
[`rl backup`](cli.md#rl-backup), which also reads them without `RELIER_`.
"""


def settings_page() -> str:
    texts = texts_below_fields(Settings)
    rows = [
        f"| `RELIER_{name.upper()}` | {default_of(default)} | {allowed(TYPES[name])} | {texts[name]} |"
        for name, default in DEFAULTS.items()
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
    if value in (None, "", NO_SECRET):
        return "not set"
    if isinstance(value, float):
        value = f"{value:g}" if value < 1e6 else f"{value:.0f}"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}


def allowed(kind: Any) -> str:
    """Return the allowed values of a setting. An optional one has its type under anyOf."""
    schema = {"type": "string"} if kind is Secret else msgspec.json.schema(kind)
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in get_args(plain_type(kind)))
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


# --- public names ------------------------------------------------------------------------------------------------

API = """# Public names

Everything that you can import from `relier`, then from its parts for [Celery](#reliercelery),
[FastAPI](#relierfastapi), the [outbox](#relieroutbox), [tests](#reliertesting) and the [dashboard](#relierdashboard).
The pages on [Django](../how-to/django-outbox.md) and [traces](../how-to/traces.md) name what these need. The options of
`rl_task`, the methods of a receipt and the fields of a context are described under [tasks](tasks.md), the errors under
[errors](errors.md).
"""
PARAGRAPH = "\n\n"
OURS = ("relier", "builtins", "typing", "enum", "collections", "abc", "contextlib", "msgspec", "re")
PARTS = ("relier.celery", "relier.fastapi", "relier.outbox", "relier.testing", "relier.dashboard")


def api_page() -> str:
    page = API + "".join(f"\n## {name}\n\n{text}\n" for name, text in documented(relier))
    for part in PARTS:
        module = importlib.import_module(part)
        first = (inspect.getdoc(module) or "").partition("\n\n")[0]
        page += f"\n## `{part}`\n\n{first}\n"
        page += "".join(f"\n### {name}\n\n{text}\n" for name, text in documented(module))
    return page


def documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the public names of a module with their descriptions, without errors."""
    for name in sorted(module.__all__, key=str.lower):
        value = getattr(module, name)
        if not (inspect.isclass(value) and issubclass(value, Exception)):
            yield name, about(name, value)


def about(name: str, value: Any) -> str:
    """Return the signature of a function or class, its docstring up to the first example, and its public methods."""
    if get_origin(value) is not None:
        return "A type to annotate a parameter with."
    doc = as_lists((inspect.getdoc(value) or "").partition("\n\n    ")[0]) if callable(value) else ""
    text = f"```text\n{name}{signature_of(value)}\n```\n\n{doc}" if callable(value) else f"`{value!r:.80}`"
    methods = [
        f"- `{each}`: {' '.join((inspect.getdoc(member) or '').partition(PARAGRAPH)[0].split())}"
        for each, member in sorted(vars(value).items() if inspect.isclass(value) and not extends_others(value) else [])
        if not each.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)) and member.__doc__
    ]
    return text.rstrip() + ("\n\n" + "\n".join(methods) if methods else "")


def extends_others(value: Any) -> bool:
    """Whether this is a class that extends one of another library, whose methods are not described here."""
    return inspect.isclass(value) and any(not base.__module__.startswith(OURS) for base in value.__mro__)


def as_lists(doc: str) -> str:
    """Turn lines of a docstring such as `then    when all have succeeded` into a list."""
    return re.sub(r"^([a-z_]+(?:, [a-z_]+)*) {2,}(\S)", r"- `\1`: \2", doc, flags=re.MULTILINE)


def signature_of(value: Any) -> str:
    """Return the parameters by name: types are in the source, and their spelling depends on the version of Python.

    A class that extends another library's has none here: they depend on the version of that library.
    """
    if extends_others(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError, errors.RelierError):  # the proxy of the running task's context has none here
        return ""
    return (
        "("
        + ", ".join(
            {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(one.kind.name, "") + one.name for one in parameters
        )
        + ")"
    )


# --- keys --------------------------------------------------------------------------------------------------------

KEYS = """# Keys in the store

All keys of a namespace begin with `<prefix>:{<namespace>}:`, by default `rl:{default}:`, so a namespace lives in one
slot of a cluster. `rl audit` checks that every key has an owner. Read them with `rl`, and never write them yourself.

| key | type | holds | owner | ends |
|---|---|---|---|---|
"""


def keys_page() -> str:
    rows = [
        (
            f"`{key.spelled}{f'<{key.per}>' if key.per else ''}`",
            key.type,
            key.holds.replace("|", "\\|"),
            key.owner,
            key.end,
        )
        for key in SCHEMA
    ]
    return KEYS + "".join(f"| {' | '.join(row)} |\n" for row in rows)


# --- metrics -----------------------------------------------------------------------------------------------------

METRICS = """# Metrics

What each process serves on `/metrics` of its port. [How to monitor](../how-to/metrics.md) explains how to use them.
Histograms have the buckets
{bounds} seconds.
"""
SERVED = {
    "worker": "Workers, native and Celery's",
    "every node": "Workers, schedulers, resurrectors",
    "supervisor": "Supervisors",
    "relay": "Relays",
    "exporter": "`rl exporter`",
}
NOTES = {
    "worker": "Schedulers and resurrectors serve those of `rl_task_…` too, for the tasks that they revive.",
    "every node": "Relays and `rl exporter` serve `rl_ready`, `rl_build_info` and `rl_process_resident_bytes`.",
}


def metrics_page() -> str:
    every = [one for one in vars(series).values() if isinstance(one, MetricSeries)]
    every += [MetricSeries(f"rl_outbox_{name}", kind, (), text, "relay") for name, kind, text in outbox_series()]
    parts = [METRICS.format(bounds=", ".join(f"{bound:g}" for bound in BOUNDS))]
    for served, title in SERVED.items():
        rows = [_metric_row(one) for one in every if one.served == served]
        note = f"{NOTES[served]}\n\n" if served in NOTES else ""
        parts.append(f"\n## {title}\n\n{note}| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "".join(rows))
    return "".join(parts)


def _metric_row(one: MetricSeries) -> str:
    name = one.name + ("_total" if one.kind == "counter" else "")
    return f"| `{name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.text} |\n"


# --- events ------------------------------------------------------------------------------------------------------

EVENTS = """# Events

Every topic, every kind of event, and every field that a reader of [`events()`](../how-to/events.md) gets.
No event carries a payload or a result.

## Fields

An event is a `relier.Event`. Fields that do not apply are empty.

```text
{fields}
```

{event}

Instead of events that cannot be delivered, a reader gets a `relier.Missed` with `topic`, `why`, `count` and `cursor`.

{missed}
"""


def events_page() -> str:
    source = inspect.getsource(relier.Event).partition('"""')[2].partition('"""')[2]
    fields = "\n".join(line[4:] for line in source.splitlines() if re.match(r"    [a-z_]+: ", line))
    docs = [as_paragraphs(inspect.getdoc(cls) or "") for cls in (relier.Event, relier.Missed)]
    page = EVENTS.format(fields=fields, event=docs[0], missed=docs[1])
    for topic, kinds in KINDS.items():
        rows = "".join(f"| `{kind}` | {text} |\n" for kind, text in kinds.items())
        page += f"\n## Topic `{topic}`\n\n| kind | what happened |\n|---|---|\n{rows}"
    return page


def as_paragraphs(doc: str) -> str:
    """Return a docstring without its first sentence, which says what the reader knows by then."""
    return doc.partition("\n\n")[2]


# --- writing -----------------------------------------------------------------------------------------------------

PAGES = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "api.md": api_page,
    "keys.md": keys_page,
    "cli.md": cli_page,
    "metrics.md": metrics_page,
    "events.md": events_page,
    "../images/states.svg": states_svg,
}


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
