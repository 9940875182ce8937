"""Negative controls: the product with one guarantee taken away, and the invariant that must be seen to break.

A check that has never been red proves nothing. Each mutant is a subclass here, or a switch of the model: the product
has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from squall.engine.api.acked_prefix import AckedPrefix
from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Run
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.parcel import Parcel
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.open_messages import Answers, OpenMessages
from squall.engine.tracking.peers import Peers
from squall.engine.tracking.tracking import Tracking
from squall.ipc.ack_rings import AckRings, Told
from squall.ipc.link import LinkReceiver, LinkSender, Missed
from tests.sim import invariants
from tests.sim.parts import REGISTRY, Parts, changed


class LiteralStormAcker(Acker):
    """The INIT guard off: a second INIT is XORed into the tree like the first, as in Storm's acker."""

    __slots__ = ()

    def init(self, root: int, xor: int, spout_task: int, mask: int = 0) -> None:
        if root in self._live:
            self.ack(Acks({root: xor}))
        else:
            super().init(root, xor, spout_task, mask)


class ForgetfulAcker(Acker):
    """What comes before its INIT is thrown away."""

    __slots__ = ()

    def _early_ack(self, root: int, value: int, mask: int) -> None:
        pass

    def fail(self, root: int, failure: Failure) -> None:
        if root in self._live:
            super().fail(root, failure)


class HastyAcker(Acker):
    """Trees are dropped before their timeout is over."""

    __slots__ = ()

    def rotate(self) -> None:
        for _ in range(3):
            super().rotate()


class BlindAcker(Acker):
    """The masks are not compared with the dead: trees wait for their timeout."""

    __slots__ = ()

    def workers_died(self, *dead: Any) -> None:
        pass


class ShortSightedAcker(Acker):
    """Only the workers that the INIT named are known, not those that tuples were sent on to."""

    __slots__ = ()

    def ack(self, acks: Acks) -> None:
        super().ack(Acks(acks.xors, {}, acks.blocks))


class HoardingAcker(Acker):
    """Trees that nobody answers are kept for ever."""

    __slots__ = ()

    def rotate(self) -> None:
        live = dict(self._live)
        super().rotate()
        self._live.update(live)


class TrashKeepingAcker(Acker):
    """What came too late is kept for ever."""

    __slots__ = ()

    def rotate(self) -> None:
        early = {**self._early_old, **self._early}
        super().rotate()
        self._early = early


class MasklessRings(AckRings):
    """Acks in rings do not say where their trees went on to."""

    def tell(self, worker: int, incarnation: int, processed: int, acks: Acks) -> bool:
        return super().tell(worker, incarnation, processed, Acks(acks.xors, {}, acks.blocks))


class RepeatingBlockRings(AckRings):
    """What was taken of a block is taken twice."""

    def take(self) -> list[Told]:
        told = super().take()
        return told + [(*which, Acks(blocks=acks.blocks)) for *which, acks in told]


class RepeatingRings(AckRings):
    """What was taken first is taken again with the next."""

    def take(self) -> list[Told]:
        told = super().take()
        return told + told[:1]


class CredulousReceiver(LinkReceiver):
    """Dedupe off: a frame that comes again is taken in again."""

    def accept(self, sequence: int, n_bytes: int = 0) -> bool:
        return super().accept(sequence, n_bytes) or True


class StingyReceiver(LinkReceiver):
    """Frames that never came are not credited, though their sender knows: the window closes for ever."""

    def known(self, sequence: int) -> None:
        super().known(sequence)
        self.processed = min(self.processed, sequence - 1)


class SilentReceiver(LinkReceiver):
    """Nobody is told what never came."""

    def tell_missed(self) -> list[Missed]:
        super().tell_missed()
        return []


class ForgivingReceiver(LinkReceiver):
    """A frame that comes when its sender was told that it never did is taken in after all."""

    late = 0

    def accept(self, sequence: int, n_bytes: int = 0) -> bool:
        if any(first <= sequence <= last for first, last in self._gaps.items()):
            self.late = sequence
            return True
        return super().accept(sequence, n_bytes)

    def done(self, sequence: int) -> None:
        if sequence != self.late:
            super().done(sequence)


class CreditingReceiver(LinkReceiver):
    """What never came is credited at once: its sender may have forgotten it when it hears of it."""

    def skip_to(self, sequence: int) -> None:
        super().skip_to(sequence)
        self.processed = self.received


class SwallowingReceiver(LinkReceiver):
    """A frame that cannot be read counts as processed."""

    def spoil(self, sequence: int) -> None:
        self.done(sequence)


class MincingReceiver(LinkReceiver):
    """Says of frames that cannot be read that they never came."""

    def tell_missed(self) -> list[Missed]:
        return [missed._replace(damaged=0) for missed in super().tell_missed()]


class DeafSender(LinkSender):
    """Does not heed what was lost."""

    def lost(self, missed: Iterable[Missed]) -> list[tuple[Any, bool]]:
        return []


class HastySender(LinkSender):
    """Takes all that is under way for lost when something is."""

    def lost(self, missed: Iterable[Missed]) -> list[tuple[Any, bool]]:
        super().lost(missed)
        return super().lost([Missed(1, self.sequence)])


class AccusingSender(LinkSender):
    """Takes the newest frame for the one that was lost."""

    def lost(self, missed: Iterable[Missed]) -> list[tuple[Any, bool]]:
        return super().lost([Missed(self.sequence, self.sequence)] if super().lost(missed) else [])


class HighestPrefix(AckedPrefix):
    """Commits the highest offset that was acked, holes or not."""

    __slots__ = ()

    def ack(self, position: int, end: int | None = None) -> bool:
        rises = position >= self.committable
        self.committable = max(self.committable, position + 1)
        return rises


class TimelessTable(OpenMessages):
    """No message timeout."""

    __slots__ = ()

    def expire(self) -> int:
        return 0


class ImpatientTable(OpenMessages):
    """The message timeout comes when half of it is over."""

    __slots__ = ()

    def __init__(self, task: int, stats: Any, timeout_ns: int, *others: Any) -> None:
        super().__init__(task, stats, timeout_ns // 2, *others)


class RepeatingTable(OpenMessages):
    """The spout hears of each failure twice."""

    __slots__ = ()

    def take_answers(self) -> Answers:
        answers = super().take_answers()
        answers.failed *= 2
        return answers


class GossipingPeers(Peers):
    """A death makes the bits of every incarnation of the worker dead, those not yet born as well."""

    def dead_mask_of(self, worker: int) -> int:
        if not super().dead_mask_of(worker):
            return 0
        return sum(1 << bit for bit in range(worker, 16 * self.n_workers, self.n_workers))


class HastyOutbox(Outbox):
    """A tuple is acked without the edges of what was emitted from it."""

    __slots__ = ()

    def ack_run(self, run: Run) -> None:
        run.children = 0
        super().ack_run(run)


class SecretiveOutbox(Outbox):
    """Failures are not told to ackers."""

    __slots__ = ()

    def take_fails(self) -> dict[int, Failure]:
        super().take_fails()
        return {}


class SilentTracking(Tracking):
    """What a lost frame said of trees is not said again."""

    def frame_lost(self, worker: int, parcel: Parcel, damaged: bool) -> None:
        silent = Parcel()
        silent.left_trees = parcel.left_trees
        super().frame_lost(worker, silent, damaged)


class LonelySpoutTracking(Tracking):
    """The spout is not told when the worker of an acker dies."""

    def worker_died(self, *worker: Any) -> None:
        acker_worker, self._acker_worker = self._acker_worker, []
        super().worker_died(*worker)
        self._acker_worker = acker_worker


@dataclass(frozen=True)
class Mutant:
    """One guarantee taken away, and the smallest search that must find out."""

    off: str
    """What is switched off, in words."""
    parts: Parts
    breaks: str
    """The invariant that breaks first in an exhaustive search of `shape` with `faults`."""
    shape: str
    faults: dict[str, int]


def _mutant(off: str, breaks: str, shape: str, faults: str = "", **others: Any) -> Mutant:
    parts = REGISTRY[off] = changed(off, **others)
    return Mutant(off, parts, breaks, shape, dict.fromkeys(faults.split(), 2 if faults == "wait" else 1))


_WAITED, _LEFT = invariants.WAITED_FOR_TIMEOUT, invariants.STATE_LEFT
_NO_CAUSE, _TWICE = invariants.FAILED_WITHOUT_CAUSE, invariants.EXECUTED_TWICE
_APART = "chain, acker apart"

MUTANTS = (
    _mutant("INIT guard", invariants.ACKED_EARLY, "edge", "repeat_init", acker=LiteralStormAcker),
    _mutant("link dedupe", _TWICE, "edge", "repeat", receiver=CredulousReceiver),
    _mutant("prefix commit", invariants.COMMITTED_TOO_FAR, "the last first", prefix=HighestPrefix),
    _mutant("new root per attempt", _NO_CAUSE, _APART, "wait", root_per_attempt=False),
    _mutant("ids of each worker's own", invariants.ACKED_EARLY, "branches apart", ids_per_worker=False),
    _mutant("children in acks", invariants.ACKED_EARLY, "sent on", outbox=HastyOutbox),
    _mutant("early messages kept", _WAITED, "acker in a third worker", acker=ForgetfulAcker),
    _mutant("dead mask", _WAITED, "edge", "kill", acker=BlindAcker),
    _mutant("masks in acks", _WAITED, "sent on", "kill", acker=ShortSightedAcker),
    _mutant("bits per incarnation", invariants.NEVER_ENDED, "edge", "kill", peers=GossipingPeers),
    _mutant("death of an acker told", _WAITED, _APART, "kill", tracking=LonelySpoutTracking),
    _mutant("fence of dead incarnations", _TWICE, "edge", "repeat kill", fences=False),
    _mutant("failures told", _WAITED, "failing bolt", outbox=SecretiveOutbox),
    _mutant("message timeout", invariants.NEVER_ENDED, "forgetful bolt", pending=TimelessTable),
    _mutant("timeout not early", _NO_CAUSE, "edge", "wait", pending=ImpatientTable),
    _mutant("one answer per attempt", invariants.ANSWERED_TWICE, "failing bolt", pending=RepeatingTable),
    _mutant("two timeouts for trees", _WAITED, "edge", "rotate", acker=HastyAcker),
    _mutant("rotation of trees", _LEFT, _APART, "repeat_init", acker=HoardingAcker),
    _mutant("rotation of early messages", _LEFT, "edge", "wait", acker=TrashKeepingAcker),
    _mutant("credit for lost frames", _LEFT, "edge", "drop", receiver=StingyReceiver),
    _mutant("probes for what is under way", _WAITED, "edge", "drop", probes=False),
    _mutant("word of lost frames", _WAITED, "edge", "drop", receiver=SilentReceiver),
    _mutant("heed of lost frames", _WAITED, "edge", "drop", sender=DeafSender),
    _mutant("word of damaged frames", _WAITED, "edge", "spoil", receiver=SwallowingReceiver),
    _mutant("why frames were lost", _NO_CAUSE, "edge", "spoil", receiver=MincingReceiver),
    _mutant("late frames refused", _TWICE, "edge", "repeat overtake ask", receiver=ForgivingReceiver),
    _mutant("word before credit", _WAITED, "edge", "drop", receiver=CreditingReceiver),
    _mutant("only the trees of lost frames", _NO_CAUSE, "the last first", "drop ask", sender=HastySender),
    _mutant("the trees of lost frames", _NO_CAUSE, "the last first", "drop ask", sender=AccusingSender),
    _mutant("acks of lost frames told again", _WAITED, "edge", "drop", tracking=SilentTracking),
)
