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
VERSION = 1
HELLO, DATA, CREDIT = 1, 2, 3
KINDS = {HELLO: "hello", DATA: "data", CREDIT: "credit"}

_HEADER = struct.Struct("<2sBBHHIIQI")
HEADER_BYTES = _HEADER.size
CREDIT_BODY = struct.Struct("<Q")


class Header(NamedTuple):
    """Who sent what to whom."""

    kind: int
    sender: int
    """Slot index."""
    receiver: int
    sender_incarnation: int
    receiver_incarnation: int
    sequence: int
    """DATA: number of the frame on its link. HELLO: 0. CREDIT: unused."""


def seal(header: Header, body: Sequence[bytes | memoryview]) -> bytes:
    """The header's bytes, with a checksum over header and body."""
    fields = (
        MAGIC, VERSION, header.kind, header.sender, header.receiver, header.sender_incarnation,
        header.receiver_incarnation, header.sequence,
    )
    crc = zlib.crc32(_HEADER.pack(*fields, 0))
    for part in body:
        crc = zlib.crc32(part, crc)
    return _HEADER.pack(*fields, crc)


def unseal(head: bytes | memoryview, body: Sequence[bytes | memoryview]) -> Header:
    """The header, after checking it and the body against the checksum."""
    if len(head) != HEADER_BYTES:
        raise ProtocolError(f"frame header of {len(head)} bytes; it must have {HEADER_BYTES}")
    *fields, crc = _HEADER.unpack(head)
    magic, version, kind = fields[:3]
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(f"frame of protocol {magic!r} version {version}; this is {MAGIC!r} version {VERSION}")
    if kind not in KINDS:
        raise ProtocolError(f"frame of unknown kind {kind}; known: {', '.join(KINDS.values())}")
    actual = zlib.crc32(_HEADER.pack(*fields, 0))
    for part in body:
        actual = zlib.crc32(part, actual)
    if actual != crc:
        raise ProtocolError(f"checksum {actual:08x} of a {KINDS[kind]} frame from slot {fields[3]} is not {crc:08x}")
    return Header(*fields[2:])
