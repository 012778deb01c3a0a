"""Offer a command of `rl` as a command of manage.py: the same options, the same code, in this project.

Child processes import the project by themselves. Environment variables tell them its settings module and import path.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError, CommandParser

from relier.cli.session import exit_code_of
from relier.django.management.task_modules import APP, modules_with_tasks
from relier.errors import RelierError

PROGRAM = APP  # `python -m relier.django worker …` is what child processes run
SETUP = "relier.django.setup"  # what they import first
SETTINGS_MODULE = "DJANGO_SETTINGS_MODULE"


class ClickCommand(BaseCommand):
    """Run a click command that takes modules. Without any, it runs the `tasks` modules of all installed apps."""

    command: click.Command

    def add_arguments(self, parser: CommandParser) -> None:
        for param in self.command.params:
            if isinstance(param, click.Argument):
                about = "Modules with tasks.  [default: the `tasks` modules of INSTALLED_APPS]"
                parser.add_argument(param.name, nargs="*", metavar="MODULE", help=about)
            elif isinstance(param, click.Option):
                parser.add_argument(*param.opts, **argparse_option(param))

    def handle(self, **given: Any) -> None:
        modules = several(given["modules"]) or modules_with_tasks()
        if not modules:
            raise CommandError(
                "no app in INSTALLED_APPS has a module `tasks`, so there is nothing to run; write one, or name your "
                "modules on the command line",
                returncode=2,
            )
        hand_down_project()
        options = [word for param in self.command.params for word in words_of(param, given[str(param.name)])]
        name = f"manage.py {type(self).__module__.rpartition('.')[2]}"
        try:
            self.command.main([*options, "--", SETUP, *modules], name, standalone_mode=False, obj=PROGRAM)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        except RelierError as error:
            raise CommandError(str(error), returncode=int(exit_code_of(error))) from error


def argparse_option(option: click.Option) -> dict[str, Any]:
    """Return an option for argparse. click converts and checks the value."""
    about = option.get_help_record(click.Context(click.Command("")))
    more: dict[str, Any] = {"dest": option.name, "help": about[1].replace("%", "%%") if about else None}
    if option.is_flag:
        return more | {"action": "store_true"}
    more["metavar"] = option.metavar or str(option.name).upper()
    return more | {"action": "append" if option.multiple else "store"}


def words_of(param: click.Parameter, value: Any) -> Iterator[str]:
    """Yield the words of an option as typed on a command line."""
    if not isinstance(param, click.Option) or value in (None, False):
        return
    for each in several(value):
        yield from [param.opts[0]] if each is True else [param.opts[0], str(each)]


def several(given: Any) -> list[Any]:
    """Return a list. `call_command` may pass a single value."""
    return list(given) if isinstance(given, list | tuple) else [given]


def hand_down_project() -> None:
    """Set the environment variables that child processes need to import the project."""
    if not os.environ.get(SETTINGS_MODULE):
        raise CommandError(
            f"{SETTINGS_MODULE} is not set; set it so that child processes find the settings", returncode=2
        )
    os.environ["PYTHONPATH"] = os.pathsep.join(own_import_paths(sys.path))


def own_import_paths(paths: Sequence[str]) -> list[str]:
    """Return the import folders that precede the standard library: those of manage.py, --pythonpath and PYTHONPATH."""
    archive = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    stdlib = sysconfig.get_path("stdlib")
    own = takewhile(lambda path: os.path.basename(path) != archive and path != stdlib, paths)
    return list(dict.fromkeys(os.path.abspath(path) for path in own))
