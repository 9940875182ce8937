"""Headers of the data plane: everything that is not exactly what was sealed is refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from squall.engine.errors import ProtocolError
from squall.ipc import frame
from squall.ipc.frame import (
    DATA,
    HEADER_BYTES,
    HELLO,
    KINDS,
    OPENING_BYTES,
    Header,
    checksum,
    opening_of,
    seal,
    unseal,
)

HEADER = Header(DATA, 3, 65535, 7, 0xFFFF_FFFF, (1 << 64) - 1, (1 << 64) - 2)
OPENING = opening_of("words-1-00000000", 5)
BODY = [b"first part", memoryview(b"second"), b""]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [[], [b""], [b"x"], BODY], ids=["none", "empty", "one", "three"])
def test_round_trip(kind: int, body: list[bytes | memoryview]) -> None:
    header = HEADER._replace(kind=kind)
    head = seal(OPENING, header, body)
    assert len(head) == HEADER_BYTES
    assert unseal(OPENING, head, body) == header
    assert unseal(OPENING, memoryview(head), body) == header


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (opening_of("words-2-00000000", 5), "frame of another topology"),
        (opening_of("words-1-00000000", 4), "frame of version 4 of the topology's assignment; this is 5"),
    ],
)
def test_frame_of_another_topology_or_version_is_refused(other: bytes, reason: str) -> None:
    head = seal(other, HEADER, BODY)
    assert unseal(other, head, BODY) == HEADER
    with pytest.raises(ProtocolError, match=reason):
        unseal(OPENING, head, BODY)


def test_every_flipped_bit_of_header_and_body_is_refused() -> None:
    head, body = seal(OPENING, HEADER, [b"0123456789"]), b"0123456789"
    whole = head + body
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            unseal(OPENING, bytes(damaged[:HEADER_BYTES]), [bytes(damaged[HEADER_BYTES:])])


def resealed(**changes: object) -> bytes:
    """A header whose checksum is right and which is wrong all the same."""
    values = {"magic": frame.MAGIC, "version": frame.VERSION, "kind": HELLO} | changes
    fields = [values["magic"], values["version"], OPENING[3:], values["kind"], 1, 2, 3, 4, 5, 6]
    packed = struct.pack(f"<2sB{OPENING_BYTES - 3}sBHHIIQQ", *fields)
    return packed + struct.pack("<I", checksum(packed))


def test_another_protocol_and_version_are_named() -> None:
    assert unseal(OPENING, resealed(), []).kind == HELLO
    v = frame.VERSION
    with pytest.raises(ProtocolError, match=f"frame of protocol b'HT' version {v}; this is b'SQ' version {v}"):
        unseal(OPENING, resealed(magic=b"HT"), [])
    with pytest.raises(ProtocolError, match=f"frame of protocol b'SQ' version 1; this is b'SQ' version {v}"):
        unseal(OPENING, resealed(version=1), [])


def test_documented_header_is_the_one_that_is_sent() -> None:
    document = Path(frame.__file__).with_name("PROTOCOL.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([a-z ]+) \|", document.partition("### Link")[0], re.MULTILINE)
    assert [name for _, _, name in rows] == [
        "magic", "version", "assignment version", "topology", "kind", "sender", "receiver",
        "sender incarnation", "receiver incarnation", "sequence", "processed", "checksum",
    ]  # fmt: skip
    ends = [int(offset) + int(size) for offset, size, _ in rows]
    assert ends == [int(offset) for offset, _, _ in rows[1:]] + [HEADER_BYTES]
