"""The permit to try suspects, which the workers of a topology pass on over the status board.

A worker asks by writing the time into its word of the board. The earliest to ask has the permit once every worker is
ready: a suspect that waits in a queue for a worker's replacement could be blamed for its death too. No other worker's
suspects are under way then, so each death has one group of suspects.

The words need no lock: a worker takes the permit a millisecond after it has asked, when every earlier request is
visible.

Thread: the worker's loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from squall.ipc.board import READY, SLOT_HEARTBEAT_NS, SLOT_TRIAL, Board

_VISIBLE_AFTER_NS = 1_000_000
"""1 ms: far longer than a word takes to become visible to other processors."""


class BoardTrialPermit:
    """One worker's side of the permit. `bounded`: trials end with a dead letter, so a death on trial is progress."""

    def __init__(
        self, board: Board, me: int, bounded: bool, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._board = board
        self._me = me
        self._at = board.slot_at(me) + SLOT_TRIAL
        self._bounded = bounded
        self._now_ns = now_ns
        self._busy = False
        board.words[self._at] = 0

    def _others(self) -> list[tuple[int, int]]:
        """(time of request, slot) of every other worker that asks."""
        words, board = self._board.words, self._board
        every = ((words[board.slot_at(slot) + SLOT_TRIAL], slot) for slot in range(board.n_slots) if slot != self._me)
        return [request for request in every if request[0]]

    def begin(self) -> bool:
        """Take the permit, or ask for it; whether this worker has it now."""
        if self._busy:
            return False
        words, board, now = self._board.words, self._board, self._now_ns()
        asked = words[self._at]
        if not asked:
            words[self._at] = now | 1 if self._bounded else now & ~1
            return False
        if now - asked < _VISIBLE_AFTER_NS or any(request < (asked, self._me) for request in self._others()):
            return False
        self._busy = all(
            board.slot(slot).state == READY for slot in range(board.n_slots) if slot != self._me
        )
        return self._busy

    def turned_since(self, at_ns: int) -> bool:
        """Whether every other worker is ready, and has taken a turn since then."""
        board = self._board
        return all(
            board.slot(slot).state == READY and board.words[board.slot_at(slot) + SLOT_HEARTBEAT_NS] > at_ns
            for slot in range(board.n_slots)
            if slot != self._me
        )

    def end(self) -> None:
        """The suspects are acked or have failed. Pass the permit on if another worker asks."""
        self._busy = False
        if self._others():
            self._board.words[self._at] = 0

    def leave(self) -> None:
        """Withdraw the request: nothing is left to try here."""
        if not self._busy:
            self._board.words[self._at] = 0
