"""Breaking a worker on purpose, by what the status board says of it.

Guarantees: a signal goes to the process of which the board says that it is the slot's worker, or to nobody. A slot that
has no worker now is an error that says why.
"""

from __future__ import annotations

import signal

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.board import DEAD, STOPPED, SlotCell
from squall.scheduler.common.process import send_signal_proven

FAULTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}


def fault_signal(fault: str) -> int:
    """The signal that a fault is; UsageError if there is no such fault."""
    if fault not in FAULTS:
        raise UsageError(f"fault {fault!r} is unknown; allowed: {', '.join(FAULTS)}")
    return FAULTS[fault]


def signal_worker(worker: str, cell: SlotCell, signum: int) -> None:
    """Signal the worker that lives in a slot. ClusterError if there is none now."""
    if cell.state == STOPPED and cell.pid:
        raise ClusterError(f"worker {worker} has been stopped")
    if cell.state != DEAD and not cell.pid:
        raise ClusterError(f"worker {worker} has not been started yet (job.wait_until_ready waits for it)")
    if cell.state == DEAD or not send_signal_proven(cell.pid, cell.started_ticks, signum):
        raise ClusterError(f"worker {worker} is dead, its replacement is not there yet")
