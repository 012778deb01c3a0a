"""Keys for tests, keyrings made of them, and a search for keys in places where none may be."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from pathlib import Path

import relier
from relier.codec.keyring import Keyring
from relier.settings import Settings

PACKAGE = str(Path(relier.__file__).parent)


def key(seed: str, size: int = 32) -> bytes:
    """Return a key that is the same in every run, and different from all others."""
    return (seed.encode() * size)[: size - 1] + bytes([0xF0 | len(seed)])


def entry(key_id: str, size: int = 32, seed: str = "") -> str:
    return f"{key_id}:{base64.b64encode(key(seed or key_id, size)).decode()}"


def keys_setting(*ids: str) -> str:
    return ",".join(entry(key_id) for key_id in ids)


def keyring(signing: str = "", encryption: str = "") -> Keyring:
    """Return a keyring with the keys of these ids, `a,b`. The first one is in use."""
    return Keyring.of(
        Settings(
            signing_keys=keys_setting(*signing.split(",")) if signing else "",
            encryption_keys=keys_setting(*encryption.split(",")) if encryption else "",
        )
    )


def spellings(raw: bytes) -> set[str]:
    """Return every way in which a text could contain the key."""
    text = base64.b64encode(raw).decode()
    plain = {text.rstrip("="), text.rstrip("=").replace("+", "-").replace("/", "_"), raw.hex(), repr(raw)[2:-1]}
    return plain | {spelled[:12] for spelled in plain}


def everything_said(error: BaseException) -> Iterator[str]:
    """Return everything that people or their tools could see of an error: its text, its causes, and local variables of
    our frames."""
    yield from (str(error), repr(error), repr(error.args), *getattr(error, "__notes__", ()))
    yield "".join(traceback.format_exception(error))
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield from (repr(value) for value in frame.f_locals.values())
    for other in (error.__cause__, error.__context__):
        if other is not None:
            yield from everything_said(other)


def leaks(said: Iterator[str] | list[str], *raw_keys: bytes) -> list[str]:
    forbidden = set().union(*(spellings(raw) for raw in raw_keys))
    return [text for text in said if any(spelled in text for spelled in forbidden)]
