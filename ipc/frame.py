"""Frames of the data plane: a fixed header, then bytes. See PROTOCOL.md for the table.

Guarantees
    * A frame that does not begin with the opening of this topology's assignment is refused before anything else is
      read of it.
    * A frame that is too short, of an unknown kind, or whose checksum does not match its content, is refused before
      anything of it is decoded.

Relies on: the run directory being its owner's alone (`ipc.rundir`), so that only workers write to each other.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from squall.engine.errors import ProtocolError

MAGIC = b"SQ"
VERSION = 9
HELLO, DATA, CREDIT, LOST, KNOWN = 1, 2, 3, 4, 5
KINDS = {HELLO: "hello", DATA: "data", CREDIT: "credit", LOST: "lost", KNOWN: "known"}

_BELONGING = struct.Struct("<3sI8s")
OPENING_BYTES = _BELONGING.size
_FIELDS = struct.Struct(f"<{OPENING_BYTES}sBHHIIQQ")
_CHECKSUM = struct.Struct("<I")
_PROTOCOL = MAGIC + bytes([VERSION])
_UNCHECKED_BYTES = _FIELDS.size
HEADER_BYTES = _UNCHECKED_BYTES + _CHECKSUM.size


class Header(NamedTuple):
    """Sender, receiver and number of a frame."""

    kind: int
    sender: int
    """Index of the worker in the assignment, as in `receiver`."""
    receiver: int
    sender_incarnation: int
    receiver_incarnation: int
    sequence: int
    """DATA: number of the frame on its link. HELLO: number of the last DATA frame sent. LOST: the last number
    that the body names, of DATA frames of the receiver. KNOWN: the same, back. CREDIT: unused."""
    processed: int = 0
    """The sender has processed every DATA frame of the receiver up to this one."""


def checksum(part: Any, before: int = 0) -> int:
    """32 bits over the bytes of `part`, continuing from those of what came before. An empty part changes nothing."""
    return xxh3_64_intdigest(part, before) & 0xFFFF_FFFF if len(part) else before


def topology_tag(topology_id: str) -> bytes:
    """Eight bytes that stand for a topology where its id has no room."""
    return hashlib.sha256(topology_id.encode()).digest()[:8]


def opening_of(topology_id: str, version: int) -> bytes:
    """The beginning of every frame between workers of one version of a topology's assignment, and of no other frame."""
    return _BELONGING.pack(_PROTOCOL, version, topology_tag(topology_id))


def seal(opening: bytes, header: Header, body: Sequence[bytes | memoryview]) -> bytes:
    """The header's bytes, with a checksum over header and body."""
    fields = _FIELDS.pack(opening, *header)
    proof = checksum(fields)
    for part in body:
        proof = checksum(part, proof)
    return fields + _CHECKSUM.pack(proof)


def unseal(opening: bytes, head: bytes | memoryview, body: Sequence[bytes | memoryview]) -> Header:
    """The header, after checking opening and length, then it and the body against the checksum."""
    if head[:OPENING_BYTES] != opening or len(head) != HEADER_BYTES:
        raise _not_ours(opening, bytes(head))
    _, *fields = _FIELDS.unpack_from(head)
    kind = fields[0]
    if kind not in KINDS:
        raise ProtocolError(f"frame of unknown kind {kind}; known: {', '.join(KINDS.values())}")
    actual = checksum(head[:_UNCHECKED_BYTES])
    for part in body:
        actual = checksum(part, actual)
    (said,) = _CHECKSUM.unpack_from(head, _UNCHECKED_BYTES)
    if actual != said:
        raise ProtocolError(f"checksum {actual:08x} of a {KINDS[kind]} frame from worker {fields[1]} is not {said:08x}")
    return Header._make(fields)


def _not_ours(opening: bytes, head: bytes) -> ProtocolError:
    """Why a frame is refused. What it says of itself may be false, but may help to find its sender."""
    if len(head) != HEADER_BYTES:
        return ProtocolError(f"frame header of {len(head)} bytes; it must have {HEADER_BYTES}")
    protocol, version, tag = _BELONGING.unpack_from(head)
    _, expected_version, expected_tag = _BELONGING.unpack_from(opening)
    if protocol != _PROTOCOL:
        return ProtocolError(
            f"frame of protocol {protocol[:2]!r} version {protocol[2]}; this is {MAGIC!r} version {VERSION}"
        )
    if tag != expected_tag:
        return ProtocolError(f"frame of another topology ({tag.hex()}; this one is {expected_tag.hex()})")
    return ProtocolError(f"frame of version {version} of the topology's assignment; this is {expected_version}")
