"""What a turn knows of other workers: the way to them and their published state.

Both are protocols. Their methods do what a worker without peers needs: nothing.

Guarantees of every transport: a parcel is delivered once, or its sender gets its tracking messages back (`take_lost`);
acks are delivered at most once; no call waits. Of every board: it tells the newest incarnation of each worker, so a
death is seen at the latest with its successor.

`ipc.data_plane.DataPlane` is the transport of a worker process, and of the proof; `squall.testing` has one of queues.
`scheduler.worker.worker_board.WorkerBoard` implements `PeerBoard` on the status board.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Protocol

from squall.engine.api.failure import Failure
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.parcel import Parcel

Deliver = Callable[[Parcel, Callable[[], None]], None]
"""Called with a received parcel, and a function to call when all of it has been processed."""
Absorb = Callable[[Acks], None]
"""Called with received acks."""


class Transport(Protocol):
    """The links of one worker. A peer is named by its index in the plan, `worker`."""

    # ---- peers ----

    def connect(self, worker: int, incarnation: int, path: Path | str) -> None:
        """Open the link to a peer that is ready."""
        return

    def disconnect(self, worker: int) -> None:
        """Close the link to an incarnation that is dead."""
        return

    def is_connected(self, worker: int) -> bool:
        return False

    def fence(self, worker: int, incarnation: int) -> None:
        """Refuse everything from incarnations of a peer older than this."""
        return

    # ---- taking in ----

    @property
    def has_input(self) -> bool:
        """True if a frame waits to be received."""
        return False

    def receive(self, deliver: Deliver, most: int) -> int:
        """Take in up to `most` waiting frames; how many there were."""
        return 0

    def take_heard(self) -> set[int]:
        """Peers from which frames or acks have come since the last call."""
        return set()

    def take_lost(self) -> Sequence[tuple[int, Parcel, bool]]:
        """Parcels that were lost for good since the last call, without their tuples: peer, parcel, and whether it came
        there and could not be read. There are some only if input was received."""
        return ()

    # ---- sending ----

    @property
    def caught_up(self) -> set[int]:
        """Connected peers that have processed all frames for them."""
        return set()

    @property
    def is_under_way(self) -> bool:
        """True if a peer has still to process a frame, or to be asked for one that is missing."""
        return False

    def has_credit(self, worker: int) -> bool:
        """Return True if a parcel may be sent to a peer now."""
        return False

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        """Send a parcel, which is then the transport's. Returns 0, or its size if it was not sent because it has more
        than `most_bytes` and can be cut. Raises ComponentError or MemoryError if it cannot be sent; nothing of it has
        left then."""
        raise AssertionError(f"there is no worker {worker}")

    def send_credit(self, at_least: int) -> None:
        """Tell each peer how many of its frames have been processed, if at least `at_least` of them are news to it."""
        return

    def park(self) -> None:
        """Give credit for all frames that were taken in, though they are not processed yet."""
        return

    def tend(self, now_ns: int) -> None:
        """Ask peers again that have been silent for long. Called whenever the worker looks around."""
        return

    def pass_over(self) -> None:
        """Give up frames that have not become whole since the last call, a message timeout ago."""
        return

    # ---- acks that need no frame ----

    def tell_acks(self, worker: int, acks: Acks) -> bool:
        """Tell a peer's ackers these acks; False if a parcel must carry them."""
        return False

    def take_acks(self, absorb: Absorb) -> int:
        """Take in the acks that peers told that way; how much it was, 0 if none."""
        return 0

    @property
    def has_acks(self) -> bool:
        """True if acks that a peer told that way are not taken in yet."""
        return False

    # ---- sleeping ----

    def set_awake(self, awake: bool) -> None:
        """Tell peers whether this worker reads its ack rings."""
        return

    def polled(self) -> None:
        """Called before a poller looks for input."""
        return


class NoTransport(Transport):
    """The transport of a worker without peers."""


PeerChange = tuple[int, int, bool, bool]
"""(worker, incarnation, whether it lives, whether it can be connected to)."""


class PeerBoard(Protocol):
    """The published state of the other workers of one topology, and of this one."""

    def changed_peers(self) -> Sequence[PeerChange]:
        """The other workers that have changed since the last call."""
        return ()

    def end_of(self, worker: int, incarnation: int) -> tuple[str, Mapping[int, Failure]]:
        """What is known about the end of a dead incarnation, "" if any tuple may have caused it; and the trees that it
        named as its end."""
        return "", {}

    def connecting(self, worker: int, incarnation: int) -> Path | str:
        """Called when a link to a peer is opened; returns the path where the peer listens."""
        raise AssertionError(f"there is no worker {worker}")

    def others_congested(self) -> bool:
        """Return True if any other worker asks the spouts to wait."""
        return False

    def full_elsewhere(self) -> frozenset[int]:
        """Tasks of other workers whose queues are full. Asked for only while `others_congested`."""
        return frozenset()

    def waits_ns(self, caught_up: Set[int], now_ns: int) -> Callable[[int], int]:
        """task of another worker -> about how long a tuple would wait for it. `caught_up`: the peers that have
        processed all that they were sent."""
        return lambda task: 0

    def at_rest(self) -> bool:
        """Return True if all other workers are quiet, and all links between any two are empty. Asked for only while
        this worker is quiet, and has published that."""
        return True

    def publish_full(self) -> None:
        """Publish which queues here are full, if that has changed."""
        return


class NoPeers(PeerBoard):
    """The board of a worker without peers: no news."""
