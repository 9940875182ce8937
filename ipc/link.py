"""One direction between two workers, as two state machines without I/O: sending and accepting.

Guarantees
    * The receiver accepts every frame of one sender incarnation at most once, in order; repeats are dropped, gaps are
      counted (the message timeout deals with a lost frame). A number that no sender can have reached is refused.
    * Flow control is credit in bytes: the sender has at most `window_bytes` under way that the receiver has not
      processed. Credit is returned when a frame has been processed. For credit, a frame that was lost counts as
      processed, and so does one that was *parked*: frames that lie before a full queue must not close the link to
      frames for other tasks (see `engine.core.backpressure`, which bounds the queues).

Relies on: a frame counting for one byte at least, and both ends having the same window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from squall.engine.errors import ProtocolError


@dataclass
class LinkSender:
    """The sending end of a link to one incarnation of a worker."""

    window_bytes: int
    sequence: int = 0
    """Number of the last frame sent; the first is 1."""
    under_way_bytes: int = 0
    _sent: deque[tuple[int, int, Callable[[], None] | None]] = field(default_factory=deque)

    @property
    def has_credit(self) -> bool:
        """Whether more data may be sent. One frame may overshoot the window, so any frame size can pass."""
        return self.under_way_bytes < self.window_bytes

    def send(self, n_bytes: int, release: Callable[[], None] | None = None) -> int:
        """Account for a frame; returns its sequence number. `release` is called when the receiver has processed it."""
        self.sequence += 1
        self.under_way_bytes += n_bytes
        self._sent.append((self.sequence, n_bytes, release))
        return self.sequence

    def credit(self, processed: int) -> None:
        """The receiver has processed every frame up to and including number `processed`.

        ProtocolError if so many were never sent.
        """
        if processed > self.sequence:
            raise ProtocolError(f"credit for frame {processed}; only {self.sequence} were sent")
        sent = self._sent
        while sent and sent[0][0] <= processed:
            _, n_bytes, release = sent.popleft()
            self.under_way_bytes -= n_bytes
            if release is not None:
                release()

    def close(self) -> None:
        """The receiver is gone: release everything."""
        self.credit(self.sequence)


@dataclass
class LinkReceiver:
    """The receiving end of a link from one incarnation of a worker."""

    incarnation: int
    window_bytes: int
    received: int = 0
    """Number of the newest frame accepted."""
    processed: int = 0
    """Every frame up to this one has been processed (or was lost)."""
    credited: int = 0
    """The value of `processed` that the sender was told last."""
    uncredited_bytes: int = 0
    """Bytes accepted since the sender was told last."""
    repeats: int = 0
    lost: int = 0
    _done_early: set[int] = field(default_factory=set)
    _gaps: dict[int, int] = field(default_factory=dict)
    """First -> last number of lost frames that cannot be credited yet: earlier ones are not processed."""

    def accept(self, sequence: int, n_bytes: int = 0) -> bool:
        """Whether to take frame `sequence` in; False for a repeat. ProtocolError if no sender can have reached it."""
        if sequence <= self.received:
            self.repeats += 1
            return False
        if sequence != self.received + 1:
            self.skip_to(sequence - 1)
        self.received = sequence
        self.uncredited_bytes += n_bytes
        return True

    def skip_to(self, sequence: int) -> None:
        """Count frames up to `sequence` that have not arrived as lost: the sender says that it sent them."""
        lost = sequence - self.received
        if lost <= 0:
            return
        if lost > self.window_bytes:
            raise ProtocolError(
                f"{lost} frames are missing after frame {self.received}; a sender has at most "
                f"{self.window_bytes} bytes under way"
            )
        self.lost += lost
        self._gaps[self.received + 1] = sequence
        self.received = sequence
        self._advance()

    def done(self, sequence: int) -> None:
        """Frame `sequence` has been processed. Frames may be done out of order."""
        if sequence <= self.processed:
            return  # it had been parked
        if sequence == self.processed + 1 and not self._done_early and not self._gaps:
            self.processed = sequence
            return
        self._done_early.add(sequence)
        self._advance()

    def park(self) -> None:
        """Count every frame that was accepted as processed."""
        self.processed = self.received
        self._done_early.clear()
        self._gaps.clear()

    def _advance(self) -> None:
        early, gaps = self._done_early, self._gaps
        while True:
            following = self.processed + 1
            if following in early:
                early.remove(following)
                self.processed = following
            elif following in gaps:
                self.processed = gaps.pop(following)
            else:
                return

    @property
    def owed(self) -> int:
        """Frames processed that the sender was not told of yet."""
        return self.processed - self.credited

    def owes(self, at_least_frames: int) -> bool:
        """Whether to tell the sender: `at_least_frames` were processed since then, or a quarter of its window."""
        owed = self.owed
        return owed >= at_least_frames or (owed > 0 and 4 * self.uncredited_bytes >= self.window_bytes)

    def credit(self) -> int:
        """The value of `processed` for the next frame to the sender, which then counts as told."""
        self.credited = self.processed
        self.uncredited_bytes = 0
        return self.processed
