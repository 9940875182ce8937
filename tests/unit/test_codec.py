"""Frames: headers are as they were sealed; parcels come back equal in value and type, or name what cannot travel."""

from __future__ import annotations

import random
import re
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from squall import ComponentError, ProtocolError
from squall.engine.flow.parcel import Parcel
from squall.ipc import frame
from squall.ipc.codec import OUT_OF_BAND_BYTES, decode, encode
from squall.ipc.frame import (
    DATA,
    HEADER_BYTES,
    HELLO,
    OPENING_BYTES,
    Header,
    checksum,
    opening_of,
    seal,
    unseal,
)
from tests.parcels import Row, batch_of, content, parcel_of, random_parcel, same


class Refusing:
    """Cannot be pickled, and says why."""

    def __reduce__(self) -> str:
        raise RuntimeError("not this one")


def travel(parcel: Parcel) -> Parcel:
    """Through bytes, the way the data plane does it: nothing of the sender's memory is shared with the receiver's."""
    data, buffers = encode(parcel)
    raws = [buffer.raw() for buffer in buffers]
    assert all(raw.nbytes >= OUT_OF_BAND_BYTES for raw in raws)
    return decode(memoryview(data), [bytes(raw) if raw.readonly else bytearray(raw) for raw in raws])


def rows_back(rows: list[Row]) -> list[Row]:
    [batch] = travel(parcel_of(batch_of(rows))).batches
    return batch.rows


# Values


def test_random_parcels(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(300):
        parcel = random_parcel(dice)
        assert same(content(travel(parcel)), content(parcel))


# Corners


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_bytes_around_the_threshold(kind: Callable[[bytes], Any], extra: int, seed: int) -> None:
    value = kind(random.Random(seed).randbytes(OUT_OF_BAND_BYTES + extra))
    data, buffers = encode(parcel_of(batch_of([("before", value), ("after", value)])))
    assert len(buffers) == (1 if extra >= 0 else 0)
    assert (len(data) < 1000) == (extra >= 0)
    back = rows_back([("before", value), ("after", kind(value))])
    assert same(back, [("before", value), ("after", value)])
    if kind is bytearray:
        back[0][1][0] ^= 255
        back[0][1].append(1)  # a buffer of its own that may be changed and resized
        assert back[1][1] == value


def test_sender_may_go_on_using_a_buffer_once_it_is_sent() -> None:
    value = bytearray(OUT_OF_BAND_BYTES)
    data, buffers = encode(parcel_of(batch_of([(value,)])))
    with pytest.raises(BufferError):
        value.append(1)  # until then it must keep its place
    assert data
    del buffers
    value.append(1)


# What cannot travel


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: 1, "lambda"),
        (Refusing(), "RuntimeError: not this one"),
        ([1, {"inner": threading.Lock()}], "cannot pickle '_thread.lock' object"),
        (memoryview(numpy.array([1, "a"], object)), "its memory holds Python objects, not bytes"),
        (memoryview(numpy.array([1, "a"] * 9000, object)), "its memory holds Python objects, not bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_cannot_be_pickled_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ComponentError) as caught:
        encode(parcel_of(batch_of([("fine", 1)]), batch_of([("word", 1), ("word", value)])))
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


HEADER = Header(DATA, 3, 65535, 7, 0xFFFF_FFFF, (1 << 64) - 1, (1 << 64) - 2)
OPENING = opening_of("words-1-00000000", 5)


def test_every_flipped_bit_of_header_and_body_is_refused() -> None:
    head, body = seal(OPENING, HEADER, [b"0123456789"]), b"0123456789"
    whole = head + body
    assert unseal(OPENING, head, [body]) == HEADER
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


def test_a_frame_of_another_kind_is_named() -> None:
    assert unseal(OPENING, resealed(), []).kind == HELLO
    v = frame.VERSION
    for head, reason in (
        (seal(opening_of("words-2-00000000", 5), HEADER, []), "frame of another topology"),
        (seal(opening_of("words-1-00000000", 4), HEADER, []), "frame of version 4 of the topology.*; this is 5"),
        (resealed(magic=b"HT"), f"frame of protocol b'HT' version {v}; this is b'SQ' version {v}"),
        (resealed(version=1), f"frame of protocol b'SQ' version 1; this is b'SQ' version {v}"),
    ):
        with pytest.raises(ProtocolError, match=reason):
            unseal(OPENING, head, [])


def test_documented_header_is_the_one_that_is_sent() -> None:
    document = Path(frame.__file__).with_name("PROTOCOL.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([a-z ]+) \|", document.partition("### Link")[0], re.MULTILINE)
    assert [name for _, _, name in rows] == [
        "magic", "version", "assignment version", "topology", "kind", "sender", "receiver",
        "sender incarnation", "receiver incarnation", "sequence", "processed", "checksum",
    ]  # fmt: skip
    ends = [int(offset) + int(size) for offset, size, _ in rows]
    assert ends == [int(offset) for offset, _, _ in rows[1:]] + [HEADER_BYTES]
