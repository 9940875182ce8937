"""Data planes for tests: what arrived, what is still at work, and turning them until something is true."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zmq

from squall.engine.flow.parcel import Parcel
from squall.ipc.ack_lanes import AckLanes
from squall.ipc.arena import MEMFD_NAME
from squall.ipc.data_plane import DataPlane
from squall.ipc.frame import opening_of
from squall.ipc.shim import LinkShim
from tests.parcels import batch_of, parcel_of

DEADLINE_SECS = 40.0
MIB = 1 << 20
WINDOW_BYTES = MIB
OPENING = opening_of(b"k" * 32, "t-1-00000000", 1)
_FRAMES_PER_TURN = 64

Make = Callable[..., "Endpoint"]


class Endpoint:
    """One worker's data plane, and what it received. `works`: whether what comes is processed at once."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], directory: Path, slot: int, incarnation: int = 1,
        window_bytes: int = WINDOW_BYTES, arena_bytes: int = 16 * MIB, shim: LinkShim | None = None,
        lanes: AckLanes | None = None, max_frame_bytes: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.slot = slot
        self.incarnation = incarnation
        self.path = directory / f"{slot}-{incarnation}"
        self.plane = DataPlane(
            context, OPENING, slot, incarnation, self.path, window_bytes, arena_bytes, shim, lanes, max_frame_bytes
        )
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

    def await_parcels(self, count: int) -> None:
        """Take in what comes until so many parcels are there, without giving credit for them."""
        while len(self.parcels) < count:
            assert self.plane.await_input(round(DEADLINE_SECS * 1000)), f"{len(self.parcels)} of {count} parcels"
            self.plane.receive(self.take_in, _FRAMES_PER_TURN)

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
        return self.plane.arena_used_bytes


def pair(make: Make, **options: Any) -> tuple[Endpoint, Endpoint]:
    one, other = make(0, **options), make(1)
    one.connect(other)
    other.connect(one)
    return one, other


def settled(sender: Endpoint) -> bool:
    return all(link.under_way_bytes == 0 for _, link, _ in sender.plane._outbound.values())


def arena_mappings() -> int:
    """How many arenas this process has mapped."""
    return Path("/proc/self/maps").read_text().count(MEMFD_NAME)


@contextlib.contextmanager
def socket_directory() -> Iterator[Path]:
    """A short path, because socket paths end at 107 bytes. Everything in it must be gone at the end."""
    path = Path(tempfile.mkdtemp(prefix="sq-"))
    yield path
    left = os.listdir(path)
    shutil.rmtree(path)
    assert left == []


@contextlib.contextmanager
def endpoints() -> Iterator[Make]:
    """Makes endpoints in this process; afterwards checks that they leave no socket and no mapping."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made: list[Endpoint] = []
    with socket_directory() as directory:

        def make(slot: int, incarnation: int = 1, **options: Any) -> Endpoint:
            made.append(Endpoint(context, directory, slot, incarnation, **options))
            return made[-1]

        yield make
        for endpoint in made:
            endpoint.plane.close()
        context.destroy(linger=0)  # with the sockets that a failed test left open
        assert arena_mappings() == 0


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
            endpoint.plane.polled()
            endpoint.turn()


def parcel(*values: Any) -> Parcel:
    """A parcel of one batch with these values."""
    return parcel_of(batch_of([(value,) for value in values]))
