"""The turn's view of other workers: the protocol, and its implementation for a worker without peers.

`scheduler.worker.board.WorkerBoard` implements it on the status board.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Protocol

from squall.engine.api.failure import Failure

PeerChange = tuple[int, int, bool, bool]
"""(worker, incarnation, whether it lives, whether it can be connected to)."""


class PeerBoard(Protocol):
    """The published state of the other workers of one topology, and of this one."""

    def changed_peers(self) -> Sequence[PeerChange]:
        """The other workers that have changed since the last call."""

    def last_words(self, worker: int, incarnation: int) -> Mapping[int, Failure] | None:
        """The trees that a dead incarnation named as its end; None if it died without a word."""

    def connecting(self, worker: int, incarnation: int) -> Path | str:
        """Called when a link to a peer is opened; returns the path where the peer listens."""

    def others_congested(self) -> bool:
        """Whether any other worker asks the spouts to wait."""

    def full_elsewhere(self) -> frozenset[int]:
        """Tasks of other workers whose queues are full. Asked for only while `others_congested`."""

    def waits_ns(self, caught_up: Set[int], now_ns: int) -> Callable[[int], int]:
        """task of another worker -> about how long a tuple would wait for it. `caught_up`: the peers that have
        processed all that they were sent."""

    def at_rest(self) -> bool:
        """Whether all other workers are quiet, and all links between any two are empty. Asked for only while this
        worker is quiet, and has published that."""

    def publish_full(self) -> None:
        """Publish which queues here are full, if that has changed."""


class NoPeers:
    """The board of a worker without peers: no news."""

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

    def waits_ns(self, caught_up: Set[int], now_ns: int) -> Callable[[int], int]:
        return lambda task: 0

    def at_rest(self) -> bool:
        return True

    def publish_full(self) -> None: ...
