"""What a turn asks of whatever carries things to other workers, and what it is where there are none.

`ipc.data_plane.DataPlane` is the transport of a worker process, and of the proof; `squall.testing` has one of queues.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from squall.engine.flow.parcel import Parcel

Deliver = Callable[[Parcel, Callable[[], None]], None]
"""Called with a parcel that came, and what to call when all of it has been processed."""
Absorb = Callable[[Mapping[int, int], Mapping[int, int]], None]
"""Called with XORs and masks, both by root."""


class Transport(Protocol):
    """The links of one worker. A peer is named by its index in the plan, `worker`."""

    # ---- peers ----

    def connect(self, worker: int, incarnation: int, path: Path | str) -> None:
        """Open the link to a peer that is ready."""

    def disconnect(self, worker: int) -> None:
        """The incarnation that this worker sends to is dead."""

    def is_connected(self, worker: int) -> bool: ...

    def fence(self, worker: int, incarnation: int) -> None:
        """Take nothing any more from incarnations of a peer older than this."""

    # ---- taking in ----

    @property
    def has_input(self) -> bool:
        """Whether a frame is there to be received."""

    def receive(self, deliver: Deliver, most: int) -> int:
        """Take in up to `most` frames that are there; how many came."""

    def take_heard(self) -> set[int]:
        """Peers that something has come from since the last call."""

    def take_lost(self) -> Sequence[tuple[int, Parcel]]:
        """Parcels that peers did not get and never will, without their tuples, since the last call; by peer. There are
        some only if input was received."""

    # ---- sending ----

    @property
    def caught_up(self) -> set[int]:
        """Connected peers that have processed everything they were sent."""

    def has_credit(self, worker: int) -> bool:
        """Whether a parcel may be sent to a peer now."""

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        """Send a parcel; 0, or the size of one that was not sent because it has more than `most_bytes` and can be cut.
        Raises ComponentError or MemoryError if it cannot be sent; nothing of it has left then. One that was sent is the
        transport's."""

    def send_credit(self, at_least: int) -> None:
        """Tell peers what has been processed of what they sent, where it is `at_least` so many frames more than they
        know."""

    def park(self) -> None:
        """Give credit for all that was taken in, though it is not processed yet."""

    def tend(self, now_ns: int) -> None:
        """Ask peers again that have been silent for long. Called whenever the worker looks around."""

    def pass_over(self) -> None:
        """Give up what has not become whole since the last call, a message timeout ago."""

    # ---- acks that need no frame ----

    def tell_acks(self, worker: int, acks: Mapping[int, int], masks: Mapping[int, int]) -> bool:
        """Tell a peer's ackers XORs and masks, by root; False if a parcel must carry them."""

    def take_acks(self, absorb: Absorb) -> int:
        """Take in what peers told that way; how much it was, 0 if nothing."""

    @property
    def has_acks(self) -> bool:
        """Whether a peer has told something that way which is not taken in yet."""

    # ---- sleeping ----

    def set_awake(self, awake: bool) -> None:
        """Tell peers whether this worker looks for their acks."""

    def polled(self) -> None:
        """A poller is about to look for input."""


class NoTransport:
    """The transport of a worker that has no peers."""

    has_input = False
    has_acks = False

    def connect(self, worker: int, incarnation: int, path: Path | str) -> None: ...

    def disconnect(self, worker: int) -> None: ...

    def is_connected(self, worker: int) -> bool:
        return False

    def fence(self, worker: int, incarnation: int) -> None: ...

    def receive(self, deliver: Deliver, most: int) -> int:
        return 0

    def take_heard(self) -> set[int]:
        return set()

    def take_lost(self) -> Sequence[tuple[int, Parcel]]:
        return ()

    @property
    def caught_up(self) -> set[int]:
        return set()

    def has_credit(self, worker: int) -> bool:
        return False

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        raise AssertionError(f"there is no worker {worker}")

    def send_credit(self, at_least: int) -> None: ...

    def park(self) -> None: ...

    def tend(self, now_ns: int) -> None: ...

    def pass_over(self) -> None: ...

    def tell_acks(self, worker: int, acks: Mapping[int, int], masks: Mapping[int, int]) -> bool:
        return False

    def take_acks(self, absorb: Absorb) -> int:
        return 0

    def set_awake(self, awake: bool) -> None: ...

    def polled(self) -> None: ...
