"""Frames that no worker of this assignment would send: refused, counted, never decoded, and no harm to anyone."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from squall.ipc import codec
from squall.ipc.frame import CREDIT, HELLO, KNOWN, LOST, opening_of
from tests.process.planes import MIB, Make, Marker, attack, endpoints, frame, pair, parcel, settled, turn_until


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


FORMER, OTHER = opening_of("t-1-00000000", 2), opening_of("t-2-00000000", 1)
GOOD, _ = codec.encode(parcel("good"))
REF = (os.getpid(), 1, 5, 4096, 100_000, 1, 0)


def descriptors(*rows: Any) -> bytes:
    return msgspec.msgpack.encode(rows)


BAD_FRAMES: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([b""], "frame header of 0 bytes; it must have 48"),
    "short": ([b"SQ\x01"], "frame header of 3 bytes; it must have 48"),
    "noise": ([random.Random(1).randbytes(500), b"more"], "frame of protocol"),
    "checksum": ([frame([GOOD])[0][:-1] + b"x"], "checksum"),
    "other worker": (frame([GOOD], receiver=2), "frame for worker 2 incarnation 1"),
    "hello with content": (frame([b"x"], kind=HELLO), "hello frame with a body"),
    "credit with content": (frame([b"x"], kind=CREDIT), "credit frame with a body"),
    "credit in parts": (frame([b"", b""], kind=CREDIT), "credit frame with a body"),
    "lost without numbers": (frame([b""], kind=LOST), "lost frame with a body of 0 bytes; allowed: triples of"),
    "lost with half a triple": (frame([bytes(16)], kind=LOST), "lost frame with a body of 16 bytes"),
    "lost in parts": (frame([bytes(24), bytes(24)], kind=LOST), "lost frame with a body of 48 bytes"),
    "lost, never sent": (frame([b"\1".ljust(24, b"\xff")], kind=LOST), "only 0 were sent"),
    "known with content": (frame([b"x"], kind=KNOWN), "known frame with a body"),
    "no content": (frame([]), "frame 1 of worker 0 cannot be decoded: EOFError"),
    "no pickle": (frame([b"garbage"]), "frame 1 of worker 0 cannot be decoded: UnpicklingError"),
    "other pickle": (frame([pickle.dumps({"a": 1})]), "frame 1 of worker 0 cannot be decoded: ValueError"),
    "empty descriptors": (frame([GOOD, b""]), "frame 1 of worker 0 cannot be decoded: DecodeError"),
    "missing buffer": (
        frame([GOOD, descriptors((True, None))]), "frame 1 of worker 0 cannot be decoded: StopIteration",
    ),
    "foreign file": (frame([GOOD, descriptors((True, REF))]), "frame 1 of worker 0 cannot be decoded: "),
    "dead process": (frame([GOOD, descriptors((True, (0, *REF[1:])))]), "decoded: ClusterError: cannot attach"),
    "other topology": (frame([GOOD], OTHER), "frame of another topology"),
    "hello of a later incarnation of a former version": (
        frame([], FORMER, kind=HELLO, sender_incarnation=0xFFFF_FFFF, sequence=0), "frame of version 2",
    ),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_frame_is_counted_and_harms_nobody(make: Make, name: str) -> None:
    message, refusal = BAD_FRAMES[name]
    one, other = pair(make)
    turn_until(lambda: one.turn() == 0 and other.turn() == 0, [one, other])
    attack(other, message)
    turn_until(lambda: other.plane.counts["frames refused"] == 1, [one, other])
    assert refusal in other.plane.refusals[-1]
    assert not other.parcels
    # What was understood of it counts (frame 1 came, and was useless); the link goes on after it, and its sender learns
    # that its own frame 1 is not wanted.
    if "decoded" in refusal:
        one.plane.send(1, parcel("a repeat of frame 1"))
    one.plane.send(1, parcel("good"))
    turn_until(lambda: (other.values == ["good"] and settled(one)) or other.probe(), [one, other])
    assert [damaged for *_, damaged in one.plane.take_lost()] == [True] * ("decoded" in refusal)
    assert other.plane.counts["frames refused"] == 1
    assert other.plane.lost == 0


def test_frame_that_is_refused_is_never_unpickled(make: Make, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    evil = pickle.dumps(Marker(marker))
    other = make(1)
    other.plane.fence(7, 5)
    whole = frame([evil])[0]
    messages = [[whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]] for at in range(len(whole))]
    messages += [frame([evil], receiver=9), frame([evil], receiver_incarnation=9), frame([evil], sender=7)]
    messages += [frame([evil], OTHER), frame([evil], FORMER, sequence=2), [*frame([evil], OTHER), *[bytes(MIB)] * 8]]
    messages += [frame([evil], sequence=1 << 40), frame([evil], kind=HELLO), frame([evil], kind=CREDIT), [evil]]
    attack(other, *messages)
    turn_until(lambda: other.plane.counts["frames refused"] == len(messages), [other])
    assert not marker.exists()
    assert not other.parcels
