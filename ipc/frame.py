"""Frames of the data plane: a fixed header, then bytes. See PROTOCOL.md for the table.

Guarantees: a frame that is too short, of another version or kind, or whose checksum does not match its content, is
refused by `ProtocolError` before anything of it is decoded.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import ProtocolError

MAGIC = b"SQ"
VERSION = 2
HELLO, DATA, CREDIT = 1, 2, 3
KINDS = {HELLO: "hello", DATA: "data", CREDIT: "credit"}

_FIELDS = struct.Struct("<3sBHHIIQQ")
_CHECKSUM = struct.Struct("<I")
_PROTOCOL = MAGIC + bytes([VERSION])
_UNCHECKED_BYTES = _FIELDS.size
HEADER_BYTES = _UNCHECKED_BYTES + _CHECKSUM.size


class Header(NamedTuple):
    """Who sent what to whom."""

    kind: int
    sender: int
    """Slot index."""
    receiver: int
    sender_incarnation: int
    receiver_incarnation: int
    sequence: int
    """DATA: number of the frame on its link. HELLO: number of the last DATA frame sent. CREDIT: unused."""
    processed: int = 0
    """The sender has processed every DATA frame of the receiver up to this one."""


def seal(header: Header, body: Sequence[bytes | memoryview]) -> bytes:
    """The header's bytes, with a checksum over header and body."""
    fields = _FIELDS.pack(_PROTOCOL, *header)
    crc = zlib.crc32(fields)
    for part in body:
        crc = zlib.crc32(part, crc)
    return fields + _CHECKSUM.pack(crc)


def unseal(head: bytes | memoryview, body: Sequence[bytes | memoryview]) -> Header:
    """The header, after checking it and the body against the checksum."""
    if len(head) != HEADER_BYTES:
        raise ProtocolError(f"frame header of {len(head)} bytes; it must have {HEADER_BYTES}")
    protocol, *fields = _FIELDS.unpack_from(head)
    if protocol != _PROTOCOL:
        raise ProtocolError(
            f"frame of protocol {protocol[:2]!r} version {protocol[2]}; this is {MAGIC!r} version {VERSION}"
        )
    kind = fields[0]
    if kind not in KINDS:
        raise ProtocolError(f"frame of unknown kind {kind}; known: {', '.join(KINDS.values())}")
    actual = zlib.crc32(head[:_UNCHECKED_BYTES])
    for part in body:
        actual = zlib.crc32(part, actual)
    (crc,) = _CHECKSUM.unpack_from(head, _UNCHECKED_BYTES)
    if actual != crc:
        raise ProtocolError(f"checksum {actual:08x} of a {KINDS[kind]} frame from slot {fields[1]} is not {crc:08x}")
    return Header._make(fields)
