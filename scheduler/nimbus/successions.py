"""Says when topologies that were replaced give way to their successors: when they have ended, and the disk is ready.

Guarantees: state that a successor shall not find is out of its way before it begins. If that fails, the one before it
stays ended, and it is tried again every RETRY_SECS; the log says why.

Thread: Nimbus's loop.
"""

from __future__ import annotations

import logging

from squall.engine.errors import ClusterError
from squall.scheduler.common.messages import Successor, TopologyRecord
from squall.scheduler.nimbus.decisions import Nimbus
from squall.scheduler.nimbus.files import NimbusFiles

RETRY_SECS = 1.0
"""Between two tries to move state out of the way, which fail while a disk is full or a directory read-only."""

log = logging.getLogger(__name__)


class Successions:
    """The successions in one run directory."""

    def __init__(self, nimbus: Nimbus, files: NimbusFiles) -> None:
        self._nimbus = nimbus
        self._files = files
        self._look_at = 0.0

    def due(self, now: float) -> list[TopologyRecord]:
        """Topologies whose successors begin now. Follow each by `Nimbus.replaced`."""
        if now < self._look_at:
            return []
        return [
            record for record in self._nimbus.replaceable()
            if record.successor is not None and self._is_ready(record.successor, now)
        ]

    def next_deadline(self) -> float | None:
        return self._look_at if self._nimbus.replaceable() else None

    def _is_ready(self, successor: Successor, now: float) -> bool:
        if not successor.fresh:
            return True
        try:
            self._files.set_state_aside(successor.topology)
        except ClusterError as error:
            log.error("%s waits: %s", successor.topology.id, error)
            self._look_at = now + RETRY_SECS
            return False
        return True
