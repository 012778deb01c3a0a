"""Check the settings and what they refer to: keys, the redaction hook, the checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from relier.cli.doctor.check_result import CheckResult, bad, ok, warn
from relier.cli.output import one_line
from relier.cli.session import Session
from relier.errors import ConfigurationError, RelierError
from relier.redact import check_hook
from relier.run.checkpoint_files import Named, folder_for
from relier.settings import DEFAULTS, Settings, name_of_setting, unknown_variables
from relier.store.connect.address import redact, target_of
from relier.submit.client import is_store_chosen


def check_settings(session: Session, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Report settings that differ from their defaults, with their source, and misspelt variables."""
    settings = session.settings
    changed = [name for name, default in DEFAULTS.items() if getattr(settings, name) != default]
    listed = ", ".join(
        f"{name} = {setting_value(settings, name)} ({setting_source(session, name)})" for name in changed
    )
    yield ok(
        "settings",
        f"Settings are valid; {f'not the defaults: {listed}' if listed else 'all are the defaults'}.",
    )
    chosen = "" if is_store_chosen(settings) else ", the default because RELIER_REDIS_URL is not set"
    yield ok("store", f"The store is {session.where}{chosen}.")
    for variable, near in unknown_variables(environment).items():
        yield warn(
            "settings",
            f"{variable} is set, but there is no such setting: it has no effect.",
            f"Did you mean {near}?" if near else "Remove it, or correct its name.",
        )


def check_tls(settings: Settings) -> Iterator[CheckResult]:
    """Report TLS that trusts any server."""
    target = target_of(settings)
    if any(one.tls is not None and not one.tls.verify for one in (*target.nodes, target.master)):
        yield warn(
            "store",
            "The store's certificate is not verified (ssl_cert_reqs=none): others can read and change tasks.",
            "Remove ssl_cert_reqs=none from the URL, and set ssl_ca_certs if the store has its own authority.",
        )


def setting_value(settings: Settings, name: str) -> str:
    """Return a setting as text, without passwords and keys."""
    value = getattr(settings, name)
    return one_line(redact(value) if isinstance(value, str) else str(value))


def setting_source(session: Session, name: str) -> str:
    """Return the origin of a value: the command-line option, the variable, or the setting of a framework's project."""
    if (name == "redis_url" and session.url is not None) or (name == "namespace" and session.namespace is not None):
        return "--url" if name == "redis_url" else "--namespace"
    return name_of_setting(name)


def environment() -> Mapping[str, str]:
    """Return the environment. Settings are read elsewhere; this only finds variables that no setting uses."""
    return os.environ


def check_keys(session: Session) -> Iterator[CheckResult]:
    """Check that the signing and encryption keys and the redaction hook can be used."""
    try:
        keyring = session.keyring
        check_hook(session.settings)
    except ConfigurationError as error:
        yield bad("keys", f"{error}.", "Correct it: until then every push fails and no worker starts.")
        return
    if keyring.signs:
        ids = f"{keyring!r}; the first of each is in use"
        yield ok("keys", f"Payloads are signed{' and encrypted' if keyring.encrypts else ''}. {ids}.")
    elif keyring.encrypts:
        yield warn(
            "keys",
            "Payloads are encrypted but not signed: anyone who can write to the store can make a worker run any task.",
            "Set RELIER_SIGNING_KEYS as well.",
        )


def check_checkpoints(settings: Settings) -> Iterator[CheckResult]:
    """Check that large checkpoints can be stored: write, read and delete one."""
    if not settings.checkpoint_dir:
        return
    where, name = redact(settings.checkpoint_dir), Named("doctor", "0", os.getpid()).file
    try:
        folder = folder_for(settings)
        if folder is not None:
            folder.write(name, b"j1")
            folder.read(name)
            folder.remove(name)
    except RelierError as error:
        yield bad("checkpoints", f"Large checkpoints cannot be stored: {error}.", "Correct RELIER_CHECKPOINT_DIR.")
    else:
        yield ok("checkpoints", f"Large checkpoints are stored in {where}, which is writable.")
