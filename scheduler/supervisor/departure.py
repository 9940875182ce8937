"""Decides when a supervisor that was told to end has nothing to wait for any more.

Guarantees
    * It waits until Nimbus has moved the work of its node away, drained, and the slots are empty.
    * It waits at most NIMBUS_PATIENCE_SECS for a Nimbus that does not answer, or answers with an error, and as long on
      top of its limit for the workers that Nimbus stops at that limit.

Pure: no I/O, no clock. Thread: the supervisor's loop.
"""

from __future__ import annotations

NIMBUS_PATIENCE_SECS = 3.0
"""Time for a Nimbus that died to be back, or for a second request to one that is slow. Not more: `squall down` kills
what has not ended after ten seconds, workers' grace included."""


class Departure:
    """The wait of one supervisor, begun at `now`."""

    def __init__(self, now: float, within_secs: float) -> None:
        self.leave_by = now + within_secs
        """When Nimbus shall have moved all work at the latest."""
        self._answer_by = now + NIMBUS_PATIENCE_SECS
        self._answered = False

    def answered(self) -> None:
        """Nimbus knows that the node is leaving, and what it wants of the slots is known."""
        self._answered = True

    def is_over(self, now: float, idle: bool) -> bool:
        """Whether to end now. `idle`: the slots are empty and Nimbus wants nothing in them."""
        return (idle and self._answered) or now >= self.next_deadline

    @property
    def next_deadline(self) -> float:
        """When it is over at the latest."""
        return self.leave_by + NIMBUS_PATIENCE_SECS if self._answered else self._answer_by
