"""AckTracker: counts the acks and failures of a feeder's messages since the test last asked."""

from __future__ import annotations

from typing import Any

from squall.testing.feeder import FeederSpout


class AckTracker:
    """Counts the answers to the messages of one `FeederSpout`, wherever its tasks run."""

    def __init__(self, feeder: FeederSpout) -> None:
        self._feeder = feeder
        self._acks_seen = 0
        self._fails_seen = 0

    @property
    def acks(self) -> int:
        """Acks since the last `reset` or `take`."""
        return len(self._feeder.acked) - self._acks_seen

    @property
    def fails(self) -> int:
        """Failures since the last `reset` or `take`."""
        return len(self._feeder.failures) - self._fails_seen

    def take(self) -> tuple[int, int]:
        """Return (acks, failures) since the last `reset` or `take`, and count from zero again."""
        acks, fails = self.acks, self.fails
        self._acks_seen += acks
        self._fails_seen += fails
        return acks, fails

    def reset(self) -> None:
        """Count from zero again."""
        self.take()

    def acks_of(self, message_id: Any) -> int:
        """Total acks of this message: 0 or 1, unless it was fed again."""
        return self._feeder.acked.count(message_id)

    def fails_of(self, message_id: Any) -> int:
        """Total failures of this message."""
        return sum(failed == message_id for failed, _ in self._feeder.failures)
