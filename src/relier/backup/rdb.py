"""Check that bytes are a complete snapshot (RDB file) of Redis or Valkey.

A snapshot begins with REDIS and four digits, or VALKEY and three. It ends with the byte 255 and a CRC-64 of everything
before it, or zeros if the server does not write checksums.
"""

from __future__ import annotations

import re

MAGIC = re.compile(rb"REDIS\d{4}|VALKEY\d{3}")
MAGIC_BYTES = 9
END = 0xFF
END_BYTES = 9  # the byte 255 and the checksum
POLYNOMIAL = 0x95AC9329AC4BC9B5  # Jones, reflected


class NotAnRdbError(ValueError):
    """The bytes are not a complete snapshot. The message says why."""


class RdbReader:
    """Take a snapshot piece by piece; `finish` raises NotAnRdbError if it is not complete.

    `checksum`: also compute the CRC-64, which takes a minute for some 300 MB. It is needed only where nothing else
    protects the bytes.
    """

    def __init__(self, *, checksum: bool = False) -> None:
        self.size = 0
        self._head = b""
        self._tail = b""
        self._crc: int | None = 0 if checksum else None

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if len(self._head) < MAGIC_BYTES:
            self._head = (self._head + data)[:MAGIC_BYTES]
            if len(self._head) == MAGIC_BYTES and not MAGIC.fullmatch(self._head):
                raise NotAnRdbError(f"it begins with {self._head!r}, not with REDIS or VALKEY and a version")
        joined = self._tail + data
        if self._crc is not None:
            self._crc = crc64(joined[:-END_BYTES], self._crc)
        self._tail = joined[-END_BYTES:]

    def finish(self) -> None:
        if not MAGIC.fullmatch(self._head):
            raise NotAnRdbError("it is too short" if self.size else "it is empty")
        if self.size < MAGIC_BYTES + END_BYTES or self._tail[0] != END:
            raise NotAnRdbError("its end is missing, so it was truncated")
        stored = int.from_bytes(self._tail[1:], "little")
        if self._crc is not None and stored and stored != crc64(self._tail[:1], self._crc):
            raise NotAnRdbError("its CRC-64 is wrong: it was changed or truncated")


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ POLYNOMIAL if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


TABLE = _table()


def crc64(data: bytes, crc: int = 0) -> int:
    """Return the CRC-64 (Jones) that snapshots use."""
    table = TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc
