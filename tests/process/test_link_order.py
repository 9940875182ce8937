"""A peer may send before it is connected back: links of the two directions come up independently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from squall.engine.flow.batch import Batch
from squall.engine.flow.parcel import Parcel
from squall.ipc.data_plane import DataPlane, PlaneAddress, PlaneLimits
from tests.process.planes import OPENING
from tests.process.waiting import wait_for

Planes = tuple[DataPlane, DataPlane, str, str]


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[Planes]:
    """Slots 0 and 1, incarnation 1, not connected."""
    paths = [str(tmp_path / name) for name in "ab"]
    contexts: list[zmq.Context[zmq.Socket[bytes]]] = [zmq.Context() for _ in paths]
    made = [
        DataPlane(contexts[worker], PlaneAddress(OPENING, worker, 1, path), PlaneLimits(1 << 20, 0))
        for worker, path in enumerate(paths)
    ]
    yield made[0], made[1], *paths
    for plane in made:
        plane.close()
    for context in contexts:
        context.term()


def parcel() -> Parcel:
    batch = Batch(1, "default", 2)
    batch.rows, batch.starts, batch.roots, batch.edges = [("x",)], [0], [0], [0]
    made = Parcel()
    made.batches.append(batch)
    return made


def receive(plane: DataPlane) -> list[Parcel]:
    """What is there."""

    def deliver(parcel: Parcel, done: Callable[[], None]) -> None:
        came.append(parcel)
        done()

    came: list[Parcel] = []
    plane.receive(deliver, 10)
    return came


@pytest.mark.parametrize("first", ["connect", "fence"])
def test_what_came_before_the_link_back_stays_counted(planes: Planes, first: str) -> None:
    sender, receiver, sender_path, receiver_path = planes
    sender.connect(1, 1, receiver_path)
    sender.send(1, parcel())
    wait_for("a frame", lambda: receive(receiver))
    if first == "fence":
        receiver.disconnect(0)
        receiver.fence(0, 1)
    receiver.connect(0, 1, sender_path)
    assert list(receiver.positions()) == [(0, 1, 0, 1)]
    assert [position[2] for position in sender.positions()] == [1]
    receiver.send_credit(at_least=1)
    wait_for("credit", lambda: not receive(sender) and 1 in sender.caught_up)
