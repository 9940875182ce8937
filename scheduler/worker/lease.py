"""A worker's right to live: its topology, this version of its assignment, and this incarnation of its slot.

Guarantees: a worker whose topology was removed or has moved, whose slot has a later incarnation, or whose run directory
was removed finds out within a second of its loop's turning, without being told. It then ends without `close` or
`cleanup`: the files that they would write may belong to a successor by now. A worker that waits for its lease to begin
never works beside its successor: if its supervisor died before it heard of the fork, nobody knows it, and the next
supervisor starts another incarnation.

A worker whose daemons are all dead keeps its right: it runs on, and the next supervisor adopts it.

Relies on: Nimbus removing an assignment's board when the assignment ends, and not before; the supervisor writing a
slot's incarnation on the board before it starts that incarnation, and the worker's pid once it has noted it down for a
successor.

Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.errors import ClusterError
from squall.ipc.board import DEAD, SLOT_IDENTITY, STOPPED, Board


class LeaseEnded(ClusterError):
    """The worker has lost its right to live."""


class Lease:
    """The lease of one incarnation of one worker."""

    def __init__(self, board: Board, slot_index: int, incarnation: int) -> None:
        self._board = board
        self._slot_index = slot_index
        self._incarnation = incarnation

    def has_begun(self, pid: int) -> bool:
        """Whether the supervisor knows the worker of this pid. Raises LeaseEnded."""
        self.check()
        cell = self._board.slot(self._slot_index)
        return (cell.incarnation, cell.pid) == (self._incarnation, pid)

    def check(self) -> None:
        """Raise LeaseEnded if the worker has lost its right. Takes 1.5 µs; called once a second."""
        board = self._board
        if not board.is_there:
            raise LeaseEnded(f"the topology, or this version of it, is no more (its board {board.path} is gone)")
        identity = board.column(SLOT_IDENTITY)[self._slot_index]
        incarnation, state = identity >> 8, identity & 0xFF
        if incarnation > self._incarnation:
            raise LeaseEnded(f"incarnation {incarnation} has taken the place of incarnation {self._incarnation}")
        if incarnation == self._incarnation and state in (DEAD, STOPPED):
            raise LeaseEnded(f"incarnation {incarnation} has been given up for dead")
