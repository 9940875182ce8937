"""Which classes the model is built of: those of the product, or with one of them replaced by a mutant.

The ids are the model's own (see `IDS`), so that a schedule repeats exactly; `tests.sim.cores` draws the product's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from squall.engine.api.prefix import AckedPrefix
from squall.engine.flow.outbox import Outbox
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.peers import Peers
from squall.engine.tracking.pending import PendingTable
from squall.engine.tracking.routing import Tracking
from squall.ipc.link import LinkReceiver, LinkSender

MESSAGE_TIMEOUT_NS = 1000
WINDOW_BYTES = 3
"""Frames count for one byte each, so that the window closes after three."""
IDS_PER_INCARNATION = 64
IDS = [number | 1 for number in map(random.Random(1).getrandbits, [64] * (IDS_PER_INCARNATION * 8 * 64))]


@dataclass(frozen=True)
class Parts:
    """What a world is made of. One that is not the default has a name in `tests.sim.mutants`."""

    name: str = ""
    acker: type[Acker] = Acker
    outbox: type[Outbox] = Outbox
    tracking: type[Tracking] = Tracking
    pending: type[PendingTable] = PendingTable
    peers: type[Peers] = Peers
    prefix: type[AckedPrefix] = AckedPrefix
    sender: type[LinkSender] = LinkSender
    receiver: type[LinkReceiver] = LinkReceiver
    fences: bool = True
    """Frames of dead incarnations are refused."""
    probes: bool = True
    """A sender that misses credit asks for it (the data plane's `probe`)."""
    root_per_attempt: bool = True
    ids_per_worker: bool = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _parts_of, (self.name,)


class SharedStats(SpoutStats):
    """Counters that no world looks at: one object serves them all, and is no part of their state."""

    def __reduce__(self) -> str:
        return "STATS"


STATS = SharedStats()
REGISTRY = {"": Parts()}
"""Parts by name; `tests.sim.mutants` adds its own."""


def _parts_of(name: str) -> Parts:
    return REGISTRY[name]
