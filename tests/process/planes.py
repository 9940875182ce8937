"""Data planes for tests: what arrived, what is still at work, and turning them until something is true."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zmq

from engine.parcel import Parcel
from ipc.data_plane import DataPlane
from ipc.shim import LinkShim
from tests.parcels import batch_of, parcel_of

DEADLINE_SECS = 2.0
MIB = 1 << 20
WINDOW_BYTES = MIB
_FRAMES_PER_TURN = 64


class Endpoint:
    """One worker's data plane, and what it received. `works`: whether what comes is processed at once."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], directory: Path, slot: int, incarnation: int = 1,
        window_bytes: int = WINDOW_BYTES, arena_bytes: int = 16 * MIB, shim: LinkShim | None = None,
    ) -> None:  # fmt: skip
        self.slot = slot
        self.incarnation = incarnation
        self.path = directory / f"{slot}-{incarnation}"
        self.plane = DataPlane(context, slot, incarnation, self.path, window_bytes, arena_bytes, shim)
        self.parcels: list[Parcel] = []
        self.at_work: list[Callable[[], None]] = []
        self.works = True

    def connect(self, *others: Endpoint) -> None:
        for other in others:
            self.plane.connect(other.slot, other.incarnation, other.path)

    def take_in(self, parcel: Parcel, done: Callable[[], None]) -> None:
        self.parcels.append(parcel)
        if self.works:
            done()
        else:
            self.at_work.append(done)

    def turn(self) -> int:
        came = self.plane.receive(self.take_in, _FRAMES_PER_TURN)
        self.plane.send_credit(at_least=1)
        return came

    def finish_work(self) -> None:
        for done in self.at_work:
            done()
        self.at_work.clear()

    @property
    def values(self) -> list[Any]:
        """First value of every row, in the order of arrival."""
        return [row[0] for parcel in self.parcels for batch in parcel.batches for row in batch.rows]

    @property
    def arena_used_bytes(self) -> int:
        arena = self.plane._arena
        return 0 if arena is None else arena.used_bytes


def turn_until(condition: Callable[[], object], endpoints: Sequence[Endpoint]) -> None:
    """Turn the loops of these planes until something is true; fails after a deadline."""
    poller = zmq.Poller()
    for endpoint in endpoints:
        poller.register(endpoint.plane.inbound, zmq.POLLIN)
    deadline = time.monotonic() + DEADLINE_SECS
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECS} s: {[e.plane.counts for e in endpoints]}"
        poller.poll(50)
        for endpoint in endpoints:
            endpoint.turn()


def parcel(*values: Any) -> Parcel:
    """A parcel of one batch with these values."""
    return parcel_of(batch_of([(value,) for value in values]))
