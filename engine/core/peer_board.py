"""What a turn asks of whatever says how the other workers are, and what that is where there are none.

`scheduler.worker.board.WorkerBoard` reads it off the status board.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from squall.engine.api.failure import Failure

PeerChange = tuple[int, int, bool, bool]
"""(worker, incarnation, whether it lives, whether it can be connected to)."""


class PeerBoard(Protocol):
    """What the other workers of one topology say, and what this one says to them at once."""

    def changed_peers(self) -> Sequence[PeerChange]:
        """Every other worker that is not as it was at the last call."""

    def last_words(self, worker: int, incarnation: int) -> Mapping[int, Failure] | None:
        """The trees that an incarnation, dead by now, says it ended by; None if it ended without a word."""

    def connecting(self, worker: int, incarnation: int) -> Path | str:
        """A link to a peer is opened now; where it listens."""

    def others_congested(self) -> bool:
        """Whether any other worker asks the spouts to wait."""

    def full_elsewhere(self) -> frozenset[int]:
        """Tasks of other workers whose queues are full. Asked for only while `others_congested`."""

    def publish_full(self) -> None:
        """Say which queues here are full, if that has changed."""


class NoPeers:
    """A worker that has no peers hears nothing of them."""

    def changed_peers(self) -> Sequence[PeerChange]:
        return ()

    def last_words(self, worker: int, incarnation: int) -> Mapping[int, Failure] | None:
        return None

    def connecting(self, worker: int, incarnation: int) -> Path | str:
        raise AssertionError(f"there is no worker {worker}")

    def others_congested(self) -> bool:
        return False

    def full_elsewhere(self) -> frozenset[int]:
        return frozenset()

    def publish_full(self) -> None: ...
