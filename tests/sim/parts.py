"""What model and clusters are built of: the parts of the product, or with one of them replaced by a mutant.

They go in where the product's assembly, its turn and its data plane take them; nothing is patched. So another
implementation of a part can be put under the same proof.

The ids are the model's own (see `IDS`), so that a schedule repeats exactly; `tests.sim.cores` draws them from the seed
of its case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

from squall.engine.api.acked_prefix import AckedPrefix
from squall.engine.core.surroundings import PRODUCT
from squall.engine.core.surroundings import Parts as CoreParts
from squall.engine.core.turn import Sending, Turn
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Limits
from squall.engine.tracking.peers import Peers
from squall.ipc.ack_rings import AckRings
from squall.ipc.link import LinkReceiver, LinkSender

MESSAGE_TIMEOUT_NS = 1000
WINDOW_BYTES = 3
"""Frames count for one byte each, so that the window closes after three."""
IDS_PER_INCARNATION = 64
IDS = [number | 1 for number in map(random.Random(1).getrandbits, [64] * (IDS_PER_INCARNATION * 8 * 64))]


@dataclass(frozen=True)
class Parts:
    """What a world or a cluster is made of. A world that is not of the default has a name in `tests.sim.mutants`."""

    name: str = ""
    core: CoreParts = PRODUCT
    peers: type[Peers] = Peers
    prefix: type[AckedPrefix] = AckedPrefix
    sender: type[LinkSender] = LinkSender
    receiver: type[LinkReceiver] = LinkReceiver
    fences: bool = True
    """Frames of dead incarnations are refused."""
    probes: bool = True
    """A sender that misses credit asks for it (the data plane's `tend`)."""
    root_per_attempt: bool = True
    ids_per_worker: bool = True
    turn: type[Turn] = Turn
    """This and what follows: of clusters only."""
    sending: type[Sending] = Sending
    rings: type[AckRings] = AckRings
    limits: type[Limits] = Limits

    def __reduce__(self) -> tuple[Any, ...]:
        return _parts_of, (self.name,)


def changed(name: str = "", **others: Any) -> Parts:
    """The product's, but for these: parts of a core, of a world or of a cluster."""
    of_core = {field.name: others.pop(field.name) for field in fields(CoreParts) if field.name in others}
    return replace(Parts(name), core=replace(PRODUCT, **of_core), **others)


class SharedStats(SpoutStats):
    """Counters that no world looks at: one object serves them all, and is no part of their state."""

    def __reduce__(self) -> str:
        return "STATS"


STATS = SharedStats()
PARTS = Parts()
"""The product's."""
REGISTRY = {"": PARTS}
"""Parts by name; `tests.sim.mutants` adds its own."""


def _parts_of(name: str) -> Parts:
    return REGISTRY[name]
