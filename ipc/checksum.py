"""Checksums of what processes send each other: xxh3, which reads a big payload at some 60 GB/s (zlib's crc32: 4.5).

So both frames and blocks of the arena are always checked.
"""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest

UNCHECKED = 0
"""The digest of a block that was not checked."""


def checksum(part: Any, before: int = 0) -> int:
    """32 bits over the bytes of `part`, continuing from those of what came before. An empty part changes nothing."""
    return xxh3_64_intdigest(part, before) & 0xFFFF_FFFF if len(part) else before


def digest(block: Any) -> int:
    """64 bits over a block, never `UNCHECKED`."""
    return xxh3_64_intdigest(block) or 1
