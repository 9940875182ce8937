"""Data planes for tests: what arrived, what is at work, turning them until something is true, attacking them."""

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

from squall.engine.errors import ProtocolError
from squall.engine.flow.parcel import Parcel
from squall.ipc import codec
from squall.ipc.ack_rings import AckRings, rings_words
from squall.ipc.arena import MEMFD_NAME
from squall.ipc.data_plane import DataPlane, PlaneAddress, PlaneLimits
from squall.ipc.frame import DATA, Header, opening_of, seal
from squall.ipc.link import ASK_EVERY_NS
from squall.ipc.shim import LinkShim
from tests.parcels import batch_of, parcel_of

DEADLINE_SECS = 100.0
MIB = 1 << 20
WINDOW_BYTES = MIB
OPENING = opening_of("t-1-00000000", 1)
_FRAMES_PER_TURN = 64

Make = Callable[..., "Endpoint"]


class WatchedPlane(DataPlane):
    """Knows why it refused something."""

    def __init__(self, *arguments: Any) -> None:
        self.refusals: list[str] = []
        super().__init__(*arguments)

    def refuse(self, error: ProtocolError) -> None:
        super().refuse(error)
        self.refusals.append(str(error))


class Endpoint:
    """One worker's data plane, and what it received. `works`: whether what comes is processed at once."""

    def __init__(
        self, directory: Path, worker: int, incarnation: int = 1,
        window_bytes: int = WINDOW_BYTES, arena_bytes: int = 16 * MIB, shim: LinkShim | None = None,
        rings: AckRings | None = None, max_frame_bytes: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.worker = worker
        self.incarnation = incarnation
        self.path = directory / f"{worker}-{incarnation}"
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.shim = shim
        self.plane = WatchedPlane(
            self.context, PlaneAddress(OPENING, worker, incarnation, self.path),
            PlaneLimits(window_bytes, arena_bytes, max_frame_bytes),
            rings or AckRings(memoryview(bytearray(8 * rings_words(3))).cast("Q"), 3, worker, incarnation), shim,
        )
        self.parcels: list[Parcel] = []
        self.at_work: list[Callable[[], None]] = []
        self.works = True
        self._now_ns = 0

    def connect(self, *others: Endpoint) -> None:
        for other in others:
            self.plane.connect(other.worker, other.incarnation, other.path)

    def take_in(self, parcel: Parcel, done: Callable[[], None]) -> None:
        self.parcels.append(parcel)
        if self.works:
            done()
        else:
            self.at_work.append(done)

    def turn(self) -> int:
        came = self.plane.receive(self.take_in, _FRAMES_PER_TURN)
        self.plane.send_credit(at_least=1)
        self.plane.confirm()
        return came

    def await_input(self) -> None:
        """Wait until a frame is there."""
        poller = self.poller()
        while not self.plane.has_input:
            assert poller.poll(round(DEADLINE_SECS * 1000)), "no frame"
            self.plane.polled()

    def poller(self, poller: zmq.Poller | None = None) -> zmq.Poller:
        """One that tells when there is something to do, or this one after telling it to."""
        poller = zmq.Poller() if poller is None else poller
        poller.register(self.plane.inbound, zmq.POLLIN)
        return poller

    def probe(self) -> None:
        """Ask again who has been silent: for him, long has passed."""
        for _ in range(2):
            self._now_ns += 2 * ASK_EVERY_NS
            self.plane.tend(self._now_ns)

    def close(self) -> None:
        """With the sockets that a failed test left open."""
        self.plane.close()
        self.context.destroy(linger=0)

    def finish_work(self) -> None:
        for done in self.at_work:
            done()
        self.at_work.clear()

    @property
    def values(self) -> list[Any]:
        """First value of every row, in the order of arrival."""
        return [row[0] for parcel in self.parcels for batch in parcel.batches for row in batch.rows]

    def frames_sent(self, worker: int) -> int:
        """DATA frames on the link to a peer."""
        return {peer: sent for peer, _, sent, _ in self.plane.positions()}[worker]


def pair(make: Make, **options: Any) -> tuple[Endpoint, Endpoint]:
    one, other = make(0, **options), make(1)
    one.connect(other)
    other.connect(one)
    return one, other


def settled(sender: Endpoint) -> bool:
    """Its peers have processed everything that it sent them."""
    return sender.plane.caught_up == {peer for peer, *_ in sender.plane.positions()}


def size_on_link(sent: Parcel) -> int:
    """Bytes that a parcel takes of its link's window."""
    data, buffers = codec.encode(sent)
    return len(data) + sum(buffer.raw().nbytes for buffer in buffers)


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
    made: list[Endpoint] = []
    with socket_directory() as directory:

        def make(worker: int, incarnation: int = 1, **options: Any) -> Endpoint:
            made.append(Endpoint(directory, worker, incarnation, **options))
            return made[-1]

        yield make
        for endpoint in made:
            endpoint.close()
        assert arena_mappings() == 0


def turn_until(condition: Callable[[], object], endpoints: Sequence[Endpoint]) -> None:
    """Turn the loops of these planes until something is true; fails after a deadline."""
    poller = zmq.Poller()
    for endpoint in endpoints:
        endpoint.poller(poller)
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


class Marker:
    """Leaves a directory behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.mkdir, (str(self.path), 0o700)


def frame(
    body: Sequence[bytes] = (), opening: bytes = OPENING, kind: int = DATA, sequence: int = 1, **changes: int
) -> list[bytes]:
    """What worker 0 says to worker 1, in parts; header and first part of the body are one."""
    fields = {"sender": 0, "receiver": 1, "sender_incarnation": 1, "receiver_incarnation": 1} | changes
    head = seal(opening, Header(kind=kind, sequence=sequence, **fields), body)
    return [head + b"".join(body[:1]), *body[1:]]


def attack(at: Endpoint, *messages: list[bytes]) -> None:
    """Send these by a connection of their own."""
    with at.context.socket(zmq.PUSH) as attacker:
        attacker.set_hwm(0)
        attacker.setsockopt(zmq.LINGER, round(DEADLINE_SECS * 1000))
        attacker.connect(f"ipc://{at.path}")
        for message in messages:
            attacker.send_multipart(message)
