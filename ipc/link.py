"""One direction between two workers, as two state machines without I/O: sending and accepting.

Guarantees
    * The receiver accepts every frame of one sender incarnation at most once, in order; repeats are dropped, gaps are
      counted. A number that no sender can have reached is refused.
    * A frame that the receiver missed once is never accepted, and the sender learns its number: what the frame held may
      be said again in another. It is not credited before that, so the sender still knows what it held. The same holds
      for a frame that came and could not be read.
    * Flow control is credit in bytes: the sender has at most `window_bytes` under way that the receiver has not
      processed. Credit is returned when a frame has been processed. For credit, a frame that was lost counts as
      processed once the sender knows of it, and so does one that was *parked*: frames that lie before a full queue must
      not close the link to frames for other tasks (see `engine.core.backpressure`, which bounds the queues).
    * Each end says when it is time to ask the other again, so nothing else that is lost is missed for long.

Relies on: a frame counting for one byte at least, and both ends having the same window. The clock is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from squall.engine.errors import ProtocolError

ASK_AFTER_NS = 50_000_000
"""Longer than an idle worker sleeps (30 ms), and than most turns take: who is merely slow is seldom asked."""
ASK_EVERY_NS = 1_000_000_000
"""Longest delay before a healed link begins to recover."""


class Patience:
    """Says when to ask again for what does not come: soon, then at twice the interval each time, then once a second for
    ever. Things are numbered from 1, and awaited one after the other; who gets them in time never asks."""

    __slots__ = ("_ask_at_ns", "_awaited", "_wait_ns")

    def __init__(self) -> None:
        self._awaited = 0
        self._wait_ns = 0
        self._ask_at_ns = 0

    def is_over(self, awaited: int, now_ns: int) -> bool:
        """Whether to ask now for number `awaited`, which is not there yet; 0: nothing is awaited. Looked at every now
        and then; the first look at a number begins the wait."""
        if awaited != self._awaited:
            self._awaited, self._wait_ns = awaited, ASK_AFTER_NS
            self._ask_at_ns = now_ns + ASK_AFTER_NS
            return False
        if not awaited or now_ns < self._ask_at_ns:
            return False
        self._wait_ns = min(2 * self._wait_ns, ASK_EVERY_NS)
        self._ask_at_ns = now_ns + self._wait_ns
        return True


MOST_RANGES = 1024
"""Most ranges in one message about lost frames; the rest follow once these are known."""


class Missed(NamedTuple):
    """Frames in a row that the receiver does not have."""

    first: int
    last: int
    damaged: int = 0
    """0: they never came; 1: they came and could not be read."""


@dataclass
class LinkSender:
    """The sending end of a link to one incarnation of a worker."""

    window_bytes: int
    sequence: int = 0
    """Number of the last frame sent; the first is 1."""
    under_way_bytes: int = 0
    _sent: deque[tuple[int, int, Callable[[], None] | None, Any]] = field(default_factory=deque)
    _patience: Patience = field(default_factory=Patience)

    @property
    def has_credit(self) -> bool:
        """Whether more data may be sent. One frame may overshoot the window, so any frame size can pass."""
        return self.under_way_bytes < self.window_bytes

    def send(self, n_bytes: int, release: Callable[[], None] | None = None, held: Any = None) -> int:
        """Account for a frame; returns its sequence number. `release` is called when the receiver has processed it.
        `held` is what the sender must know of it should it be lost."""
        self.sequence += 1
        self.under_way_bytes += n_bytes
        self._sent.append((self.sequence, n_bytes, release, held))
        return self.sequence

    def not_sent(self) -> None:
        """The last frame did not leave, and the caller keeps what it held. Its number is one that never comes."""
        number, n_bytes, release, _ = self._sent.pop()
        self._sent.append((number, n_bytes, release, None))

    def lost(self, missed: Iterable[Missed]) -> list[tuple[Any, bool]]:
        """The receiver missed these frames, in rising order: what they held, each time it is asked for the first time,
        and whether they came and could not be read.

        ProtocolError if so many were never sent, or the numbers do not rise.
        """
        sent, before = self._sent, 0
        oldest = self.sequence - len(sent) + 1
        numbers: list[tuple[int, bool]] = []
        for first, last, damaged in missed:
            if not before < first <= last <= self.sequence:
                raise ProtocolError(f"frames {first} to {last} missed, after {before}; only {self.sequence} were sent")
            numbers += ((number, bool(damaged)) for number in range(max(first, oldest), last + 1))
            before = last
        found = []
        for number, came in numbers:
            _, n_bytes, release, held = sent[number - oldest]
            if held is not None:
                sent[number - oldest] = (number, n_bytes, release, None)
                found.append((held, came))
        return found

    def asks(self, now_ns: int) -> bool:
        """Whether to tell the receiver now how many frames it should have got: the oldest under way has been so for
        long."""
        return self._patience.is_over(self._sent[0][0] if self._sent else 0, now_ns)

    def credit(self, processed: int) -> None:
        """The receiver has processed every frame up to and including number `processed`.

        ProtocolError if so many were never sent.
        """
        if processed > self.sequence:
            raise ProtocolError(f"credit for frame {processed}; only {self.sequence} were sent")
        sent = self._sent
        while sent and sent[0][0] <= processed:
            _, n_bytes, release, _ = sent.popleft()
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
    """Every frame up to this one has been processed, or was lost and the sender knows."""
    credited: int = 0
    """The value of `processed` that the sender was told last."""
    uncredited_bytes: int = 0
    """Bytes accepted since the sender was told last."""
    repeats: int = 0
    lost: int = 0
    untold: bool = False
    """There are frames lost that `tell_missed` has not named yet."""
    _done_early: set[int] = field(default_factory=set)
    _gaps: dict[int, int] = field(default_factory=dict)
    """First -> last number of lost frames that cannot be credited yet, in rising order: the sender does not know of
    them, or earlier ones are not processed."""
    _damaged: set[int] = field(default_factory=set)
    """The gaps of a single frame that came and could not be read."""
    _known: int = 0
    """The sender knows of all gaps up to this number."""
    _told: int = 0
    """It was told of all up to this one."""
    _parked: int = 0
    """Frames up to this one were parked while there was a gap."""
    _patience: Patience = field(default_factory=Patience)

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
        self.untold = True

    def spoil(self, sequence: int) -> None:
        """Frame `sequence`, the one accepted last, cannot be read: its sender is to know, as of one that never came."""
        self._gaps[sequence] = sequence
        self._damaged.add(sequence)
        self.untold = True

    def tell_missed(self) -> list[Missed]:
        """Frames that were lost and of which the sender may not know, in rising order; it is told with this call."""
        self.untold = False
        known, damaged = self._known, self._damaged
        gaps = (Missed(first, last, first in damaged) for first, last in self._gaps.items() if last > known)
        missed = list(islice(gaps, MOST_RANGES))
        self._told = missed[-1].last if missed else self._told
        return missed

    def known(self, sequence: int) -> None:
        """The sender knows of every frame up to this one that was missed. ProtocolError if so many have not come, or
        been missed."""
        if sequence > self.received:
            raise ProtocolError(f"word on lost frames up to {sequence}; {self.received} have come or been missed")
        self._known = max(self._known, sequence)
        self._advance()
        self.untold = self.untold or self._oldest_missed > self._told

    @property
    def has_gaps(self) -> bool:
        """Whether there are frames lost that cannot be credited yet."""
        return bool(self._gaps)

    @property
    def _oldest_missed(self) -> int:
        """0: the sender knows of all."""
        return next((first for first, last in self._gaps.items() if last > self._known), 0)

    def asks(self, now_ns: int) -> bool:
        """Whether to tell the sender again what was missed."""
        return self._patience.is_over(self._oldest_missed if self._gaps else 0, now_ns)

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
        if self._gaps:
            self._parked = self.received
            self._advance()
        else:
            self.processed = self.received
            self._done_early.clear()

    def _advance(self) -> None:
        early, gaps = self._done_early, self._gaps
        while True:
            following = self.processed + 1
            if following in gaps:
                if gaps[following] > self._known:
                    return
                self.processed = gaps.pop(following)
                self._damaged.discard(following)
            elif following in early:
                early.remove(following)
                self.processed = following
            elif following <= self._parked:
                self.processed = following
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
