"""Whoever writes to a worker's socket without its topology's secret: nothing of it is believed, kept or executed."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from squall.engine.errors import ComponentError
from squall.ipc import codec
from squall.ipc.frame import CREDIT, DATA, HELLO, OPENING_BYTES, Header, opening_of, seal
from tests.process.planes import MIB, OPENING, Endpoint, Make, endpoints, pair, parcel, settled, turn_until

FORGED = OPENING[:-1] + bytes([OPENING[-1] ^ 1])
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16 + 1 + 31)
READY = b"\x05READY" + b"\x0bSocket-Type" + (4).to_bytes(4, "big") + b"PUSH"


@pytest.fixture
def make() -> Iterator[Make]:
    with endpoints() as make:
        yield make


class Marker:
    """Leaves a directory behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.mkdir, (str(self.path), 0o700)


def attack(at: Endpoint, *messages: list[bytes]) -> None:
    attacker = at.plane._socket(zmq.PUSH)
    attacker.connect(f"ipc://{at.path}")
    for message in messages:
        attacker.send_multipart(message)
    attacker.close()


def message(opening: bytes, body: bytes = b"", kind: int = DATA, sequence: int = 1, **changes: int) -> list[bytes]:
    fields = {"sender": 0, "receiver": 1, "sender_incarnation": 1, "receiver_incarnation": 1} | changes
    return [seal(opening, Header(kind=kind, sequence=sequence, **fields), [body]) + body]


def memory(name: str) -> int:
    """Bytes: VmRSS or VmSize of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    "opening",
    [FORGED, opening_of(b"k" * 32, "t-1-00000000", 2), opening_of(b"k" * 32, "t-2-00000000", 1)],
    ids=["forged", "former version", "other topology"],
)
def test_frames_without_the_secret_are_counted_and_change_nothing(make: Make, tmp_path: Path, opening: bytes) -> None:
    one, other = pair(make)
    turn_until(lambda: one.turn() == 0 and other.turn() == 0, [one, other])
    marker = tmp_path / "executed"
    evil = pickle.dumps(Marker(marker))
    high = 0xFFFF_FFFF
    attack(
        other,
        message(opening, evil, sequence=2),
        message(opening, evil, sender=7),
        message(opening, kind=HELLO, sender_incarnation=high, sequence=0),
        message(opening, kind=HELLO, sequence=1000),
        message(opening, kind=CREDIT, sender_incarnation=high, processed=1),
        message(opening, codec.encode(parcel("evil"))[0], sender_incarnation=high),
        [*message(opening, evil), *[bytes(MIB)] * 8],
    )
    turn_until(lambda: other.plane.counts["frames refused"] == 7, [one, other])
    assert not marker.exists()
    assert other.plane._fence == {0: 1}
    assert {slot: link.incarnation for slot, link in other.plane._receivers.items()} == {0: 1}
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])
    assert other.plane.lost == 0


def test_a_high_incarnation_in_a_first_frame_stops_nobody(make: Make) -> None:
    one, other = make(0), make(1)
    attack(other, message(FORGED, kind=HELLO, sender_incarnation=0xFFFF_FFFF, sequence=0))
    turn_until(lambda: other.plane.counts["frames refused"] == 1, [other])
    one.connect(other)
    other.connect(one)
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])


@pytest.mark.parametrize("parts", [0, 3], ids=["first part", "later part"])
def test_an_announcement_of_three_gigabytes_closes_the_connection(make: Make, parts: int) -> None:
    one, other = pair(make)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20)
        raw.connect(str(other.path))
        raw.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
        raw.sendall(b"\x01\x02hi" * parts)
        before = memory("VmSize")
        with contextlib.suppress(ConnectionError):  # it may have hung up before all of this is read
            raw.sendall(b"\x02" + (3 << 30).to_bytes(8, "big") + bytes(1000))
            while raw.recv(4096):
                pass  # its side of the greeting
        assert memory("VmSize") - before < 256 * MIB
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])


def test_a_frame_of_many_parts_is_bounded_as_a_whole(make: Make) -> None:
    one, other = make(0, max_frame_bytes=4 * MIB), make(1, max_frame_bytes=4 * MIB)
    one.connect(other)
    other.connect(one)
    attack(other, [OPENING.ljust(64), *[bytes(MIB)] * 5])
    turn_until(lambda: other.plane.counts["frames refused"] == 1, [one, other])
    assert other.plane.last_refusal == f"frame of {5 * MIB + 64} bytes; at most {4 * MIB} may be"
    one.plane.send(1, parcel("good"))
    turn_until(lambda: other.values == ["good"] and settled(one), [one, other])


def test_the_secret_is_in_no_text(make: Make) -> None:
    one, other = pair(make)
    attack(other, message(FORGED), message(OPENING, sequence=1 << 40))
    turn_until(lambda: other.plane.counts["frames refused"] == 2, [one, other])
    secret = OPENING[OPENING_BYTES - 16 :]
    assert secret.hex() not in other.plane.last_refusal
    assert secret.hex() not in repr(other.plane)


def test_what_no_receiver_would_take_is_an_error_at_its_sender(make: Make) -> None:
    one, other = (make(slot, max_frame_bytes=2 * MIB, arena_bytes=4 * MIB) for slot in (0, 1))
    one.connect(other)
    other.connect(one)
    with pytest.raises(ComponentError, match=r"frame of \d+ bytes; max_frame_bytes allows 2097152"):
        one.plane.send(1, parcel(["x" * 3 * MIB]))
    with pytest.raises(ComponentError, match="max_frame_bytes"):
        one.plane.send(1, parcel("x" * (2 * MIB - 50)))
    with pytest.raises(ComponentError, match="max_frame_bytes"):
        one.plane.send(1, parcel(bytes(3 * MIB), "x" * 3 * MIB))
    assert one.plane.arena_used_bytes == 0
    one.plane.send(1, parcel(bytes(3 * MIB)))  # lies in the arena
    one.plane.send(1, parcel("x" * (2 * MIB - 1000)))
    turn_until(lambda: len(other.values) == 2 and settled(one), [one, other])
    assert (other.plane.lost, other.plane.counts["frames refused"]) == (0, 0)
