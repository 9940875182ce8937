"""AckTracker: how many acks and failures a feeder was told, since the test last asked."""

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
        """(acks, failures) since the last time, counted from now on afresh."""
        acks, fails = self.acks, self.fails
        self._acks_seen += acks
        self._fails_seen += fails
        return acks, fails

    def reset(self) -> None:
        """Count from now on afresh."""
        self.take()

    def acks_of(self, message_id: Any) -> int:
        """How often this message's tree was acked, ever: 0 or 1, but for a message that was fed again."""
        return self._feeder.acked.count(message_id)

    def fails_of(self, message_id: Any) -> int:
        """How often this message failed, ever."""
        return sum(failed == message_id for failed, _ in self._feeder.failures)
