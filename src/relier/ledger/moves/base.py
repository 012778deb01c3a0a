"""Shared by all moves: the namespace, and how arguments are encoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relier.errors import ShardsError
from relier.ledger import keys
from relier.settings import Settings
from relier.settings.shards import mark_suffix
from relier.store.call import Arg, Call, Durability

MAX_DETAIL_BYTES = 64 * 1024


class MoveBase:
    """The state that the moves of one namespace share: its key prefix and its limits."""

    def __init__(self, settings: Settings) -> None:
        if settings.is_sharded:
            raise ShardsError(
                f"this part of Relier does not support RELIER_SHARDS yet: it would use the namespace "
                f"{settings.namespace!r}, but tasks lie in {settings.namespace}.0 to {settings.namespace}."
                f"{settings.shards - 1}; nothing was done; see docs/how-to/shards.md for what supports shards"
            )
        self.prefix = keys.prefix(settings.namespace, settings.key_prefix)
        self._namespace = settings.namespace
        self._max_bytes = settings.max_payload_bytes
        self._shards = settings.shards
        self._mark_suffix = mark_suffix(settings.shard, settings.shards)

    def _call(
        self, script: str, args: Iterable[Arg], parse: Any, durability: Durability = Durability.MEMORY
    ) -> Call[Any]:
        return Call(script, self.prefix, tuple(args), parse, durability)


def plain(text: str) -> bytes:
    """Encode text that people read. Never fails; truncates very long text."""
    return text.encode("utf-8", "backslashreplace")[:MAX_DETAIL_BYTES].decode("utf-8", "ignore").encode()


def durability_flag(durability: Durability) -> str:
    return "" if durability is Durability.MEMORY else "1"
