"""What a supervisor breaks on purpose on its node: its workers stand still or run slowly, forks are refused.

Guarantees: see `scheduler.breaking.process_faults`. A file of the faults in force that cannot be read changes nothing:
what was begun ends by the clock.

Relies on: Nimbus to say when the file has changed. Owner: the supervisor's loop.
"""

from __future__ import annotations

import logging

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import read_faults
from squall.scheduler.breaking.process_faults import ProcessFaults
from squall.scheduler.faults.in_force import FaultInForce

FORK_REFUSED = "fork-refused"

log = logging.getLogger(__name__)


class NodeFaults:
    """Those of one node."""

    def __init__(self, run_dir: RunDir, node: str) -> None:
        self._run_dir = run_dir
        self._node = node
        self._processes = ProcessFaults(node)
        self._refusing: list[FaultInForce] = []

    def look(self, now: float) -> None:
        """The file was written, or nobody has looked at it yet."""
        try:
            faults = read_faults(self._run_dir)
        except ClusterError as error:
            log.error("%s", error)
            return
        self._refusing = [fault for fault in faults if fault.carrier == self._node and fault.kind == FORK_REFUSED]
        self._processes.take(faults, now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._processes.tick(now)

    def next_deadline(self, now: float) -> float | None:
        return self._processes.next_deadline(now)

    def fork_refusal(self, now: float) -> str:
        """Why no worker may be forked now; "" if one may."""
        refusing = [fault for fault in self._refusing if fault.is_in_force(now)]
        return f"fault {refusing[0].id} refuses forks" if refusing else ""

    def end(self, now: float) -> None:
        """The supervisor leaves."""
        self._processes.end(now)
