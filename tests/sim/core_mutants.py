"""Negative controls of the simulation with real cores: which part is replaced, and what must break."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.core.emit_paths import AnyCollector, Emit, fast_emit
from squall.engine.core.turn import FRAMES_AT_ONCE, Sending, Turn
from squall.engine.flow.anchoring import Anchoring, BlockAcks
from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.bolt_collectors import BasicCollector
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.attempts import Limits
from squall.engine.tracking.blocks import TrackedBlock
from squall.engine.tracking.open_messages import OpenMessages
from tests.sim import invariants
from tests.sim.control import Control
from tests.sim.cores import Cluster
from tests.sim.halves import run_halves
from tests.sim.ledger import IN_BATCHES
from tests.sim.mutants import (
    CredulousReceiver,
    LiteralStormAcker,
    MasklessRings,
    RepeatingBlockRings,
    RepeatingRings,
)
from tests.sim.parts import PARTS, Parts, changed
from tests.unit.test_fate import EVENTS, World

# ---- blocks: these need components that take batches ----


class TogetherAcker(Acker):
    """All trees of a block count as processed with the first of them."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        super().ack_block(base, acks)
        tracked = self._blocks.get(base)
        if tracked is not None and len(tracked) < tracked.block.members:
            for member in list(tracked):
                tracked.give_up([member])
                self._answer(tracked, [member])


class SolidaryAcker(Acker):
    """All trees of a block fail with one of them."""

    __slots__ = ()

    def fail(self, root: int, failure: Failure) -> None:
        found = self._blocks.find(root)
        super().fail(root, failure)
        if found is not None:
            tracked, _ = found
            for other in tracked.block.roots(tracked):
                super().fail(other, failure)


class MasklessBlocks(Acker):
    """Nobody knows to which workers the trees of a block were sent on."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        super().ack_block(base, BlockAcks(acks.members, acks.xors))


class DeafBlocks(Acker):
    """What single tuples say of a tree in a block is not heard."""

    __slots__ = ()

    def _ack_elsewhere(self, acks: list[tuple[int, int]], masks: Mapping[int, int]) -> None:
        super()._ack_elsewhere([ack for ack in acks if self._blocks.find(ack[0]) is None], masks)


class CoarseBlocks(Acker):
    """A worker counts as holding a part of every tree of a block if it holds one of any."""

    __slots__ = ()

    def ack_block(self, base: int, acks: BlockAcks) -> None:
        every = int.from_bytes(b"\1" * acks.members, "little")
        super().ack_block(base, BlockAcks(acks.members, acks.xors, dict.fromkeys(acks.masks, every)))


class MuteBlocks(Acker):
    """Nobody is told of the trees of a block that fail together by a death."""

    __slots__ = ()

    def _fail_touched(self, tracked: TrackedBlock, mask: int, failure: Failure | None) -> None:
        told = len(self.answers)
        super()._fail_touched(tracked, mask, failure)
        del self.answers[told:]


class UnwrittenBlocks(OpenMessages):
    """No journal has what is emitted in blocks."""

    __slots__ = ()

    def _add_block(self, *emitted: Any) -> None:
        watching, self.attempts.watching = self.attempts.watching, False
        super()._add_block(*emitted)
        self.attempts.watching = watching


# ---- turns ----


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
        return wait_ms or min(1, self._sending.idle_turns)


class LooksTooSoon(Turn):
    """Looks for the last time before it says that it sleeps."""

    def lie_down(self) -> int:
        self._transport.polled()
        if self._transport.has_acks or not self._sending.idle_turns:
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


# ---- the controls: what `tests.sim.mutants` has, the model finds ----


@dataclass(frozen=True)
class CoreMutant(Control):
    """A cluster of which one guarantee was taken away, and the cases that must find out."""

    kind = "cores"
    most = 600
    parts: Parts
    actions: tuple[str, ...] = ()
    deaths: bool = True
    chained: bool = False
    faulty_turns: int = 250
    in_batches: tuple[str, ...] = ()
    case: Callable[[int, Parts], None] | None = None
    """In place of a cluster of these."""

    def run(self, seed: int, is_off: bool = True) -> None:
        parts = self.parts if is_off else PARTS
        if self.case is not None:
            return self.case(seed, parts)
        return Cluster(
            seed, self.actions, self.deaths, self.chained, self.in_batches, self.faulty_turns, parts=parts
        ).run()


class UnevenBatch(Batch):
    """The first part of a run that is cut is acked under no edge: nothing waits for it."""

    __slots__ = ()

    def split(self, count: int, new_edge: Callable[[], int]) -> Batch:
        return super().split(count, lambda: 0)


class UnevenOpenBatch(OpenBatch):
    __slots__ = ()

    def take(self) -> Batch:
        batch = super().take()
        batch.__class__ = UnevenBatch
        return batch


def careless_emit(collector: AnyCollector) -> Emit | None:
    """What a basic bolt emits is anchored to nothing: nobody waits for it."""
    emit = fast_emit(collector)
    if not isinstance(collector, BasicCollector) or emit is None:
        return emit

    def emits(*given: Any, **named: Any) -> list[int]:
        key, anchoring = collector.key, collector.anchoring
        collector.end()
        collector.key, collector.anchoring = 0, Anchoring((0,))
        try:
            return emit(*given, **named)
        finally:
            collector.end()
            collector.key, collector.anchoring = key, anchoring

    return emits


class BlamesCompany(Limits):
    """A death blames a message also if others were on trial with it."""

    __slots__ = ()

    def is_crash(self, failure: Failure, alone: bool) -> bool:
        return super().is_crash(failure, True)


class BlamesKills(Limits):
    """A kill from outside blames the message on trial."""

    __slots__ = ()

    def is_crash(self, failure: Failure, alone: bool) -> bool:
        return super().is_crash(replace(failure, error=""), alone)


def judged(seed: int, parts: Parts) -> None:
    """The spout tasks of `tests.unit.test_fate`, of which workers die at random."""
    rng, world = random.Random(seed), World(2, parts.limits(max_crashes=2))
    for _ in range(300):
        EVENTS[rng.choice(list(EVENTS))](world, rng.choice(world.tasks), rng.randrange(10**6))


PLAIN_EMITS = changed(fast_emit=lambda collector: None)
"""No mutant: every emit goes the plain way."""
NEITHER = changed(acker=LiteralStormAcker, receiver=CredulousReceiver)

_WAITED, _EARLY = invariants.WAITED_FOR_TIMEOUT, invariants.ACKED_EARLY

CORE_MUTANTS = (
    CoreMutant("trial alone", invariants.BURIED_INNOCENT, Parts(limits=BlamesCompany), case=judged),
    CoreMutant("who sent a signal", invariants.BURIED_INNOCENT, Parts(limits=BlamesKills), case=judged),
    CoreMutant("edges of both parts of a run", _EARLY, changed(open_batch=UnevenOpenBatch)),
    CoreMutant("anchors of fast emits", _EARLY, changed(fast_emit=careless_emit)),
    CoreMutant("ids of each worker's own", invariants.ID_REPEATED, Parts(ids_per_worker=False)),
    CoreMutant("link dedupe and INIT guard", _EARLY, NEITHER, ("duplicate",), False),
    CoreMutant("masks in ack rings", _WAITED, Parts(rings=MasklessRings), chained=True, faulty_turns=30),
    CoreMutant(
        "taking blocks from ack rings once", _WAITED, Parts(rings=RepeatingBlockRings), in_batches=IN_BATCHES,
        faulty_turns=30,
    ),
    CoreMutant("taking from ack rings once", _WAITED, Parts(rings=RepeatingRings)),
    CoreMutant("reading the board before answering", _WAITED, Parts(turn=FollowsLate), faulty_turns=30),
    CoreMutant("journals before bolts", invariants.EXECUTED_UNWRITTEN, Parts(turn=WritesLate)),
    CoreMutant("a last look before sleeping", invariants.SLEPT_ON_NEWS, Parts(turn=LooksNotAgain)),
    CoreMutant("saying so before the last look", invariants.SLEPT_ON_NEWS, Parts(turn=LooksTooSoon)),
    CoreMutant("acks in parcels for who sleeps", _WAITED, Parts(turn=TellsNobody)),
    CoreMutant("sending with idle hands", _WAITED, Parts(sending=WaitsForCompany)),
    CoreMutant("an XOR for each tree of a block", _EARLY, changed(acker=TogetherAcker), in_batches=("numbers", "fan")),
    CoreMutant(
        "failures of single trees of a block", invariants.FAILED_WITHOUT_CAUSE, changed(acker=SolidaryAcker),
        in_batches=("numbers", "fan"),
    ),
    CoreMutant("masks of blocks", _WAITED, changed(acker=MasklessBlocks), in_batches=IN_BATCHES, faulty_turns=30),
    CoreMutant("acks of rows for blocks", _WAITED, changed(acker=DeafBlocks), in_batches=("numbers",)),
    CoreMutant(
        "which trees of a block a worker held", invariants.FAILED_WITHOUT_CAUSE, changed(acker=CoarseBlocks),
        case=run_halves,
    ),
    CoreMutant(
        "word of blocks that touched the dead", _WAITED, changed(acker=MuteBlocks), in_batches=IN_BATCHES,
        faulty_turns=30,
    ),
    CoreMutant(
        "journals of blocks", invariants.EXECUTED_UNWRITTEN, changed(pending=UnwrittenBlocks),
        in_batches=("numbers",), faulty_turns=30,
    ),
    CoreMutant("rotation in the turn", invariants.STATE_LEFT, Parts(turn=NeverRotates)),
)
