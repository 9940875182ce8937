"""When a worker sends what it has for other workers.

Every frame costs both ends a tenth of a millisecond of processor time, every tuple that waits for one costs its tree
that wait. So (D2 of the design, and measured, see benchmarks/NOTES.md):

* who has nothing better to do sends at once: nothing ever waits for company with idle hands;
* who has heard from a peer (a frame, or acks in its ring when it has nothing left to do of what it was sent) answers
  it, once what came has been executed and the spouts here, and the bolts that others read from, have added what they
  have to say: both ends then send as often as they can take it, however fast or loaded they are, and what is said just
  before a frame leaves does not wait for the next;
* a peer that still has a frame to process is sent no further one until it has answered, until a full one has gathered,
  or until the worker looks around (see `due`), so that nothing waits for an answer that does not come.

A worker whose spouts have more to say than fits a turn sends a full frame at the end of every turn anyway, and answers
with that.

Decides only: asks core and transport, sends nothing. Thread: the worker's loop.
"""

from __future__ import annotations

from squall.engine.core.transport import Transport
from squall.engine.core.worker_core import WorkerCore

_FULL_FRAMES = 16
"""Times `batch_tuples`: so much is sent to a peer even if it has not answered the frame before."""
_FEW_BUSY_TURNS = 2
"""So many turns after an idle one a worker still counts as one that has time."""


class Sending:
    """The rule for one worker. It returns the peers to send to: None is everyone, an empty set nobody."""

    def __init__(self, core: WorkerCore, transport: Transport, batch_tuples: int) -> None:
        self._core = core
        self._transport = transport
        self._enough = batch_tuples
        self._full = _FULL_FRAMES * batch_tuples
        self._busy_turns = 0
        self.idle_turns = 0
        """How many turns in a row have done nothing."""

    def stir(self) -> None:
        """Something has happened that others wait to hear of: the turns to come count as the first idle ones."""
        self.idle_turns = 0

    def answer(self) -> set[int]:
        """Whom to send to now that what came has been executed."""
        heard = self._transport.take_heard()
        return heard if self._core.ran_dry else set()

    def end_of_turn(self, worked: bool, due: bool) -> set[int] | None:
        """Whom to send to at the end of a turn, which did something (`worked`) or not. `due`: it is time to look
        around, so nothing shall be kept back any longer."""
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
        """After a turn that did something: whether the next would find nothing to do, as far as one can tell.

        A worker that had no idle turn lately does better to fill its frames: each costs as much as a turn.
        """
        return self._busy_turns < _FEW_BUSY_TURNS and self._core.ran_dry and not self._transport.has_input
