"""The parts of a worker core: a factory for each part that another implementation may replace.

Guarantees: assembly makes these parts only by this record. So a replacement (compiled, or a mutant of the proof) is
used everywhere, and every proof of the product's part can be run on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from squall.engine.core.emit_paths import FastEmit, fast_emit
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.ids import EdgeIds, root_ids
from squall.engine.flow.outbox import Outbox
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.open_messages import OpenMessages
from squall.engine.tracking.routing import Tracking


@dataclass(frozen=True)
class Parts:
    """One factory for each part; each takes the arguments of the product's."""

    draw: Callable[[int], bytes] = os.urandom
    """Random bytes, so many, that ids are made of."""
    edge_ids: Callable[[Callable[[int], bytes]], EdgeIds] = EdgeIds
    """Each outbox has a source of its own."""
    root_ids: Callable[[int, Callable[[int], bytes]], Iterator[int]] = root_ids
    outbox: Callable[[EdgeIds], Outbox] = Outbox
    open_batch: Callable[..., OpenBatch] = OpenBatch
    fast_emit: FastEmit = fast_emit
    """What a component calls instead of its collector's `plain_emit`, if anything."""
    acker: Callable[[], Acker] = Acker
    tracking: Callable[..., Tracking] = Tracking
    pending: Callable[..., OpenMessages] = OpenMessages

    def new_outbox(self) -> Outbox:
        """Make an outbox with ids of its own."""
        return self.outbox(self.edge_ids(self.draw))


PRODUCT = Parts()
