"""Ends the faults in force, even if a fault has stopped Nimbus.

Guarantees: a Nimbus that a fault has stopped is continued before it is asked to end the other faults. No other process
is: the file of faults in force names it by pid and start time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from squall.scheduler.breaking.faults_file import faults_now
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.faults.in_force import NIMBUS, FaultInForce


def heal(client: NimbusClient, targets: Sequence[str] = ()) -> list[FaultInForce]:
    """End every fault, or those that were begun with exactly these targets; returns them."""
    for fault in faults_now(client.run_dir, time.monotonic()):
        if not targets or list(targets) == fault.targets:
            for victim in fault.victims:
                if victim.name == NIMBUS:
                    send_signal_proven(victim.pid, victim.started_ticks, signal.SIGCONT)
    return client.heal(targets)
