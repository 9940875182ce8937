"""Negative controls of the simulation with real cores: what is replaced in the product, and what must break."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import squall.engine.core.turn
import squall.engine.flow.ids
import squall.engine.tracking.routing
import squall.ipc.data_plane
from squall.engine.flow.batch import Batch
from tests.sim import cores, invariants
from tests.sim.cores import Cluster
from tests.sim.invariants import InvariantBrokenError
from tests.sim.mutants import (
    BlindAcker,
    CredulousReceiver,
    HoardingAcker,
    LiteralStormAcker,
    MasklessRings,
    RepeatingRings,
)
from tests.sim.turn_mutants import (
    FollowsLate,
    LooksNotAgain,
    LooksTooSoon,
    NeverRotates,
    TellsNobody,
    WaitsForCompany,
    WritesLate,
)


class SameBytes:
    """A generator that every worker seeds alike, as a `random.Random` that was inherited through fork would be."""

    @staticmethod
    def urandom(count: int) -> bytes:
        return bytes(1 + index % 251 for index in range(count))


@dataclass(frozen=True)
class CoreMutant:
    """Names replaced in modules of the product, for the time of one case."""

    off: str
    replaced: tuple[tuple[Any, str, Any], ...]
    breaks: str
    actions: tuple[str, ...] = ()
    deaths: bool = True
    chained: bool = False
    faulty_turns: int = 250

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module, name, new in self.replaced:
                stack.enter_context(patch.object(module, name, new))
            yield

    def first_broken(self, most: int) -> tuple[int, str] | None:
        """(seed, invariant) of the first case that breaks as it must."""
        with self.applied():
            for seed in range(most):
                try:
                    Cluster(seed, self.actions, self.deaths, self.chained, self.faulty_turns).run()
                except InvariantBrokenError as error:
                    if error.invariant == self.breaks:
                        return seed, error.invariant
        return None


LITERAL = (squall.engine.tracking.routing, "Acker", LiteralStormAcker)
NO_DEDUPE = (squall.ipc.data_plane, "LinkReceiver", CredulousReceiver)



def split_under_edge_0(batch: Batch, count: int, new_edge: Callable[[], int]) -> Batch:
    """The first part of a run that is cut is acked under no edge: nothing waits for it."""
    return split(batch, count, lambda: 0)


split = Batch.split

CORE_MUTANTS = (
    CoreMutant("edges of both parts of a run", ((Batch, "split", split_under_edge_0),), invariants.ACKED_EARLY),
    CoreMutant("ids of each worker's own", ((squall.engine.flow.ids, "os", SameBytes),), invariants.ID_REPEATED),
    CoreMutant("link dedupe", (NO_DEDUPE,), invariants.WAITED_FOR_TIMEOUT, ("duplicate",), deaths=False),
    CoreMutant("link dedupe and INIT guard", (NO_DEDUPE, LITERAL), invariants.ACKED_EARLY, ("duplicate",), False),
    CoreMutant(
        "dead mask", ((squall.engine.tracking.routing, "Acker", BlindAcker),), invariants.WAITED_FOR_TIMEOUT
    ),
    CoreMutant(
        "rotation of trees", ((squall.engine.tracking.routing, "Acker", HoardingAcker),), invariants.STATE_LEFT,
        ("drop",), False,
    ),
    CoreMutant(
        "masks in ack rings", ((cores, "AckRings", MasklessRings),), invariants.WAITED_FOR_TIMEOUT, chained=True,
        faulty_turns=30,
    ),
    CoreMutant("taking from ack rings once", ((cores, "AckRings", RepeatingRings),), invariants.WAITED_FOR_TIMEOUT),
    CoreMutant(
        "reading the board before answering", ((cores, "Turn", FollowsLate),), invariants.WAITED_FOR_TIMEOUT,
        faulty_turns=30,
    ),
    CoreMutant("journals before bolts", ((cores, "Turn", WritesLate),), invariants.EXECUTED_UNWRITTEN),
    CoreMutant("a last look before sleeping", ((cores, "Turn", LooksNotAgain),), invariants.SLEPT_ON_NEWS),
    CoreMutant("saying so before the last look", ((cores, "Turn", LooksTooSoon),), invariants.SLEPT_ON_NEWS),
    CoreMutant("acks in parcels for who sleeps", ((cores, "Turn", TellsNobody),), invariants.WAITED_FOR_TIMEOUT),
    CoreMutant(
        "sending with idle hands", ((squall.engine.core.turn, "Sending", WaitsForCompany),),
        invariants.WAITED_FOR_TIMEOUT,
    ),
    CoreMutant("rotation in the turn", ((cores, "Turn", NeverRotates),), invariants.STATE_LEFT),
)
