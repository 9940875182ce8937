"""What truly happened in the model, and the invariants that hold at every moment.

Kept beside the code under test and fed by the bolts and the spout alone: an attempt is processed when every bolt of its
tree has executed it, whatever tables and XORs say.
"""

from __future__ import annotations

from squall.engine.api.failure import FAILED, FRAME_DAMAGED, FRAME_LOST, TIMEOUT, WORKER_DIED, Failure
from tests.sim.invariants import (
    ACKED_EARLY,
    ANSWERED_TWICE,
    COMMITTED_TOO_FAR,
    EXECUTED_TWICE,
    FAILED_WITHOUT_CAUSE,
    InvariantBrokenError,
)
from tests.sim.parts import MESSAGE_TIMEOUT_NS
from tests.sim.shapes import BoltSpec, Shape


class Truth:
    """Attempts, numbered as they were begun."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.offsets: list[int] = []
        self.done: list[int] = []
        """Marks of the bolts that executed it."""
        self.told: list[bool] = []
        self.begun_ns: list[int] = []
        self.touched: list[int] = []
        """Slots that tuples of it were emitted to."""
        self.current: dict[int, int] = {}
        """offset -> its newest attempt."""
        self.complete: set[int] = set()
        """Offsets of which an attempt was executed by every bolt and acked."""
        self.lost: set[int] = set()
        """Attempts of which a tuple was in a frame that got lost."""
        self.damaged: set[int] = set()
        """The same, in one that could not be decoded."""
        self.killed = 0
        """Slots whose worker was killed."""

    def begin_attempt(self, offset: int, now_ns: int) -> int:
        self.current[offset] = serial = len(self.offsets)
        self.offsets.append(offset)
        self.done.append(0)
        self.told.append(False)
        self.begun_ns.append(now_ns)
        self.touched.append(0)
        return serial

    def abandon(self) -> None:
        """The spout's worker is gone: nobody is there to be told of the attempts under way."""
        self.told = [True] * len(self.told)

    def is_first(self, serials: tuple[int, ...]) -> bool:
        return any(self.offsets.index(self.offsets[serial]) == serial for serial in serials)

    def executed(self, bolt: BoltSpec, serials: tuple[int, ...]) -> None:
        for serial in serials:
            if self.done[serial] & bolt.bit:
                raise InvariantBrokenError(EXECUTED_TWICE, f"bolt {bolt.bit:b} got attempt {serial} again")
            self.done[serial] |= bolt.bit

    def answered(self, offset: int, failure: Failure | None, now_ns: int) -> None:
        serial = self.current[offset]
        if self.told[serial]:
            raise InvariantBrokenError(ANSWERED_TWICE, f"attempt {serial} of message {offset}")
        self.told[serial] = True
        if failure is None:
            if self.done[serial] != self.shape.full:
                missing = self.shape.full & ~self.done[serial]
                raise InvariantBrokenError(ACKED_EARLY, f"attempt {serial} of message {offset}, bolts {missing:b}")
            self.complete.add(offset)
        elif not self._has_cause(serial, failure.reason, now_ns):
            raise InvariantBrokenError(FAILED_WITHOUT_CAUSE, f"attempt {serial} of message {offset}: {failure}")

    def _has_cause(self, serial: int, reason: str, now_ns: int) -> bool:
        if reason == WORKER_DIED:
            plan = self.shape.plan
            ackers = sum(1 << worker for worker in {plan.task_worker[task] for task in plan.ackers})
            return bool(self.killed & (self.touched[serial] | ackers))
        if reason == FRAME_LOST:
            return serial in self.lost
        if reason == FRAME_DAMAGED:
            return serial in self.damaged
        if reason == TIMEOUT:
            return now_ns - self.begun_ns[serial] >= MESSAGE_TIMEOUT_NS
        return reason == FAILED and self.shape.fails

    def check_committed(self, committed: int) -> None:
        for offset in range(committed):
            if offset not in self.complete:
                raise InvariantBrokenError(COMMITTED_TOO_FAR, f"{committed}, but message {offset} was not processed")

    def __str__(self) -> str:
        waiting = [self.offsets[serial] for serial, told in enumerate(self.told) if not told]
        return f"messages processed {sorted(self.complete)}, not answered {waiting}"
