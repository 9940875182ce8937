"""A worker's right to live: its topology, this version of its assignment, and this incarnation of its slot.

Guarantees: a worker whose topology is no more, or has moved, or whose slot has been given to a later incarnation, or
whose run directory was removed, finds out within a second of its loop's turning, without anybody to tell it. It then
ends without `close` or `cleanup`: what they would write belongs to somebody else by now.

A worker whose daemons are all dead keeps its right: it runs on, and the next supervisor adopts it.

Relies on: Nimbus removing an assignment's board when it is over, and not before; the supervisor writing on the board
who lives in a slot before it starts anybody.

The worker's loop thread.
"""

from __future__ import annotations

from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, STOPPED, Board


class LeaseEnded(ClusterError):
    """Nobody wants this worker any more."""


class Lease:
    """That of one incarnation of one worker."""

    def __init__(self, board: Board, slot_index: int, incarnation: int) -> None:
        self._board = board
        self._slot_index = slot_index
        self._incarnation = incarnation

    def check(self) -> None:
        """Raises LeaseEnded. A microsecond and a half: called once a second."""
        board = self._board
        if not board.is_there:
            raise LeaseEnded(f"the topology, or this version of it, is no more (its board {board.path} is gone)")
        identity = board.identity(self._slot_index)
        incarnation, state = identity >> 8, identity & 0xFF
        if incarnation > self._incarnation:
            raise LeaseEnded(f"incarnation {incarnation} has taken the place of incarnation {self._incarnation}")
        if incarnation == self._incarnation and state in (DEAD, STOPPED):
            raise LeaseEnded(f"incarnation {incarnation} has been given up for dead")
