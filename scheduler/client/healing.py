"""Ends the faults in force, and tells whether one of them has stopped Nimbus.

Guarantees: `heal` continues a Nimbus that a fault has stopped before it asks it to end the other faults. No other
process: the file of faults in force names it by pid and start time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import faults_now
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.faults.in_force import NIMBUS, FaultInForce

_MOMENT_SECS = 0.2
"""More than Nimbus leaves between its answer to the request and the stop."""


def nimbus_is_stopped(run_dir: RunDir) -> bool:
    """Whether a fault has stopped Nimbus, or will in a moment: it answers nothing until the end of that fault."""
    now = time.monotonic()
    return any(
        fault.kind == "stop" and any(victim.name == NIMBUS for victim in fault.victims)
        for fault in faults_now(run_dir, now + _MOMENT_SECS)
        if now < fault.ends_secs
    )


def heal(client: NimbusClient, targets: Sequence[str] = ()) -> list[FaultInForce]:
    """End every fault, or those that were begun with exactly these targets; returns them."""
    for fault in faults_now(client.run_dir, time.monotonic()):
        if not targets or list(targets) == fault.targets:
            for victim in fault.victims:
                if victim.name == NIMBUS:
                    send_signal_proven(victim.pid, victim.started_ticks, signal.SIGCONT)
    return client.heal(targets)
