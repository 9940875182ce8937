"""Turns whose order is wrong in one place each: `make prove` must notice, since it runs the turn that workers run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.core.turn import FRAMES_AT_ONCE, Sending, Turn


class FollowsLate(Turn):
    """Looks at the board after what came was executed and answered."""

    def _take_in(self) -> bool:
        frames = self._transport.receive(self._core.receive, FRAMES_AT_ONCE)
        acks = self._transport.take_acks(self._tracking.take_acks)
        if frames or acks:
            self._write_journals()
            self._core.run_bolts()
            self.settle()
            self._send(self._transport.take_heard())
        self.follow_peers()
        return frames + acks > 0


class WritesLate(Turn):
    """Writes journals when the bolts have had their turn."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._write_journals: Callable[[], None] = lambda: None

    def run(self) -> bool:
        worked = super().run()
        self._core.write_journals()
        return worked


class LooksNotAgain(Turn):
    """Says that it sleeps, and sleeps."""

    def lie_down(self) -> int:
        wait_ms = super().lie_down()
        return wait_ms or (0 if self._worked else 1)


class LooksTooSoon(Turn):
    """Looks for the last time before it says that it sleeps."""

    def lie_down(self) -> int:
        self._transport.polled()
        if self._worked or self._transport.has_acks:
            return 0
        self._transport.set_awake(False)
        return self._idle_wait_ms


class TellsNobody(Turn):
    """Acks that have a shorter way take it, those that do not are lost."""

    def _tell(self) -> None:
        for told in self._tracking.take_to_tell():
            self._transport.tell_acks(*told)


class WaitsForCompany(Sending):
    """Sends full frames, and answers, and nothing because there is time for it."""

    def end_of_turn(self, worked: bool, due: bool) -> set[int] | None:
        workers = super().end_of_turn(worked, due)
        return set() if workers is None else workers


class NeverRotates(Turn):
    """Has no message timeout pass: no tree is forgotten."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.rotates_at_ns = 1 << 62
