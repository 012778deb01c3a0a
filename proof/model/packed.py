"""Decode the output of membership.pack: lists and raw strings as MessagePack."""

from __future__ import annotations

import struct
from typing import Any


def unpack(raw: bytes) -> Any:
    """Return the decoded value: bytes, or a list of values."""
    return _value(raw, 0)[0]


def _value(raw: bytes, at: int) -> tuple[Any, int]:
    head = raw[at]
    if 0x90 <= head <= 0x9F or head == 0xDD:
        n, at = (head & 0x0F, at + 1) if head != 0xDD else (struct.unpack_from(">I", raw, at + 1)[0], at + 5)
        found = []
        for _ in range(n):
            item, at = _value(raw, at)
            found.append(item)
        return found, at
    if 0xA0 <= head <= 0xBF:
        n, at = head & 0x1F, at + 1
    elif head == 0xDA:
        n, at = struct.unpack_from(">H", raw, at + 1)[0], at + 3
    else:
        n, at = struct.unpack_from(">I", raw, at + 1)[0], at + 5
    return raw[at : at + n], at + n
