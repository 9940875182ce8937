"""Decides when a worker sends its parcels to other workers.

Every frame costs both ends a tenth of a millisecond of processor time; a tuple that waits for a frame delays its tree.
So (D2 of the design, and measured, see benchmarks/NOTES.md):

* an idle worker sends at once: a tuple waits for others only while there is other work;
* a worker that has heard from a peer (a frame, or acks in its ring after it has done all received work) answers it once
  the received tuples are executed, and the spouts and feeders here have added their emits: so both ends send as often
  as they can process, at any speed or load, and output made just before a frame leaves does not wait for the next;
* a peer that still has a frame to process gets no further one until it has answered, until a full one has gathered, or
  until the worker looks around (see `due`), so that no tuple waits for an answer that does not come.

A worker whose spouts emit more than fits a turn sends a full frame at the end of every turn anyway, and answers with
that.

Decides only: asks core and transport, sends nothing. Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.core.transport import Transport
from squall.engine.core.worker_core import WorkerCore

_FULL_FRAMES = 16
"""Batches of `batch_tuples` that are sent to a peer even if it has not answered the frame before."""
_FEW_BUSY_TURNS = 2
"""Turns after an idle one in which a worker still counts as having time."""


class Sending:
    """The rule for one worker. Methods return the peers to send to: None is all, an empty set none."""

    def __init__(self, core: WorkerCore, transport: Transport, batch_tuples: int) -> None:
        self._core = core
        self._transport = transport
        self._enough = batch_tuples
        self._full = _FULL_FRAMES * batch_tuples
        self._busy_turns = 0
        self.idle_turns = 0
        """How many turns in a row have done nothing."""

    def stir(self) -> None:
        """Count the next idle turns as the first ones: other processes wait for news of a change."""
        self.idle_turns = 0

    def answer(self) -> set[int]:
        """The peers to send to after the received tuples were executed."""
        heard = self._transport.take_heard()
        return heard if self._core.ran_dry else set()

    def end_of_turn(self, worked: bool, due: bool) -> set[int] | None:
        """The peers to send to at the end of a turn, which did something (`worked`) or not. `due`: it is time to look
        around, so nothing is kept back any longer."""
        has_time = self._has_time()
        self._busy_turns = self._busy_turns + 1 if worked else 0
        self.idle_turns = 0 if worked else self.idle_turns + 1
        if not worked or due or has_time:
            return None
        waiting = self._core.for_others
        if waiting >= self._full:
            return None
        return self._transport.caught_up if waiting >= self._enough else set()

    def _has_time(self) -> bool:
        """After a turn that did something: whether the next is likely to find nothing to do.

        A worker that had no idle turn lately does better to fill its frames: each costs as much as a turn.
        """
        return self._busy_turns < _FEW_BUSY_TURNS and self._core.ran_dry and not self._transport.has_input
