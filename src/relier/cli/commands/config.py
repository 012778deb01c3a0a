"""rl config: show and validate the settings, without a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from relier.cli.command_groups import DefaultGroup, store_options
from relier.cli.doctor.check_result import CheckResult, bad, print_check
from relier.cli.doctor.settings_checks import check_keys, check_settings, environment, setting_source, setting_value
from relier.cli.output import plural, print_json
from relier.cli.session import Exit, Session, with_session
from relier.cli.shards.routes import once, routed
from relier.cli.table import print_table
from relier.errors import ConfigurationError
from relier.settings import DEFAULTS, Settings
from relier.settings.values import Secret
from relier.store.connect.address import target_of

HEADERS = ("SETTING", "VALUE", "SOURCE")


@click.group(cls=DefaultGroup, default="show", aliases={"list": "show", "check": "validate"})
@store_options
def config(**_: Any) -> None:
    """Show and validate the settings. No store is needed.

    Without a command, shows the settings.
    """


@config.command()
@click.option("--all", "everything", is_flag=True, help="Also show settings that have their default.")
@click.option("--name", "part", default="", metavar="TEXT", help="Only settings whose names contain this.")
@with_session
@routed(once)
def show(session: Session, everything: bool, part: str) -> None:
    """Show the settings that differ from their defaults, and where they come from. Secrets are hidden."""
    settings = session.settings
    names = [name for name in DEFAULTS if part.lower().removeprefix("relier_") in name]
    changed = [name for name in names if _is_changed(settings, name)]
    shown = names if everything else changed
    if session.as_json:
        print_json({"settings": {name: _as_dict(session, name) for name in shown}})
    elif shown:
        print_table(HEADERS, [_row(session, name) for name in shown])
    else:
        click.echo("All settings have their defaults; `rl config show --all` lists them.")


def _row(session: Session, name: str) -> tuple[str, str, str]:
    source = setting_source(session, name) if _is_changed(session.settings, name) else "default"
    return name, setting_value(session.settings, name), source


def _as_dict(session: Session, name: str) -> dict[str, Any]:
    value = getattr(session.settings, name)
    _, shown, source = _row(session, name)
    return {"value": shown if isinstance(value, str | Secret) else value, "source": source}


def _is_changed(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != DEFAULTS[name])


@config.command()
@with_session
@routed(once)
def validate(session: Session) -> Exit:
    """Check that the settings are valid, that keys and hooks can be used, and that no variable is misspelt.

    Exits with 1 if something is wrong, and with 2 if a setting is invalid. `rl doctor` also checks the store.
    """
    try:
        target_of(session.settings)
        found = [*check_settings(session, environment()), *check_keys(session)]
    except ConfigurationError as error:
        found = [bad("settings", f"{error}.", "")]
        code = Exit.USAGE
    else:
        code = Exit.PROBLEM if any(result.level != "ok" for result in found) else Exit.OK
    _report(session, found)
    return code


def _report(session: Session, found: list[CheckResult]) -> None:
    wrong = sum(result.level != "ok" for result in found)
    if session.as_json:
        print_json({"ok": not wrong, "checks": [asdict(result) for result in found]})
        return
    for result in found:
        print_check(result)
    click.echo(f"{plural(wrong, 'problem')} found." if wrong else "No problems found.")
