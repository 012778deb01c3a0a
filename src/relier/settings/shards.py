"""Shards: how ids and keys choose one, and how the settings of one shard follow from those of all.

Shard 2 of the namespace `shop` is the namespace `shop.2`, complete in itself. An id belongs to the shard that
`shard_of` returns, so that everybody finds it without a lookup. That function is part of the layout: if it changed,
stored tasks would lie where nobody looks. Why: docs/decisions/0021-a-shard-is-a-namespace.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import count
from typing import Any

from relier.errors import ShardsError

MOST_SHARDS = 1024
LONGEST_NAMESPACE = 64
ROOT = -1  # in place of a shard's number: the namespace without one, which only records how many shards there are
_BETWEEN_URLS = re.compile(r"\s+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_IN_MARK = re.compile(r"\.\d*of(\d+)-\d+$")


def shard_of(name: str, shards: int) -> int:
    """Return the shard of an id or a key: its BLAKE2b hash of 8 bytes, as a big-endian number, modulo the shards."""
    if shards == 1:
        return 0
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def drawn(new_id: Callable[[], str], shard: int, shards: int) -> str:
    """Return a new id that belongs to the shard. This takes as many draws as there are shards, on average."""
    while True:
        made = new_id()
        if shard_of(made, shards) == shard:
            return made


def derived(first: str, shard: int, shards: int) -> str:
    """Return the id derived from others that belongs to the shard: `first`, or `first~1`, `first~2`, …"""
    if shard_of(first, shards) == shard:
        return first
    return next(found for n in count(1) if shard_of(found := f"{first}~{n}", shards) == shard)


def split_urls(text: str) -> tuple[str, ...]:
    """Return the store URLs in a text: one, or several with spaces between them."""
    return tuple(_BETWEEN_URLS.split(text.strip()))


def trouble_with_shards(values: Mapping[str, Any]) -> str:
    """Return what is wrong with RELIER_SHARDS and the settings that depend on it, or nothing."""
    shards, urls = values["shards"], split_urls(values["redis_url"])
    if len(urls) not in {1, shards}:
        return (
            f"RELIER_REDIS_URL lists {len(urls)} URLs, but RELIER_SHARDS is {shards}; list one URL per shard, in order "
            f"and separated by spaces, or one URL for all shards"
        )
    longest = len(f"{values['namespace']}.{shards - 1}")
    if shards > 1 and longest > LONGEST_NAMESPACE:
        return (
            f"RELIER_NAMESPACE is too long for {shards} shards: with a shard's number it would have {longest} "
            f"characters, but {LONGEST_NAMESPACE} are allowed; shorten it"
        )
    return ""


def refuse_shards(shards: int, what: str) -> None:
    """Raise ShardsError if there are several shards, because a part of Relier does not support them."""
    if shards > 1:
        raise ShardsError(
            f"{what} does not support RELIER_SHARDS yet, which is {shards} here; nothing was done; use it in a "
            f"namespace without shards; see docs/how-to/shards.md"
        )


def mark_suffix(shard: int | None, shards: int) -> str:
    """Return the part of a birth mark that records which shard of how many this is. It is empty without shards."""
    if shard is None:
        return ""
    return f".{'' if shard == ROOT else shard}of{shards}"


def shards_in_mark(mark: str) -> int:
    """Return under how many shards a namespace was created, by its birth mark."""
    found = _IN_MARK.search(mark)
    return int(found[1]) if found else 1


def check_shards(namespace: str, shards: int, born: str) -> None:
    """Raise ShardsError if the namespace with this birth mark was created under a different number of shards."""
    known = shards_in_mark(born)
    if known != shards:
        raise ShardsError(
            f"namespace {namespace!r} was created under RELIER_SHARDS={known}, but this process has "
            f"RELIER_SHARDS={shards}: tasks of one would lie where the other does not look; nothing was written; set "
            f"RELIER_SHARDS={known} here, or drain the namespace and change the number with `rl shards change`; see "
            f"docs/how-to/shards.md"
        )
