"""Ending the faults in force, also where Nimbus is the one that stands still.

Guarantees: a daemon that a fault has stopped goes on before Nimbus is asked to end the rest. Nobody else is continued:
a process is one that the file of faults in force names, by pid and start time.
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
    """End every fault, or those that were begun with just these targets. What was ended."""
    for fault in faults_now(client.run_dir, time.monotonic()):
        if not targets or list(targets) == fault.targets:
            for victim in fault.victims:
                if victim.name == NIMBUS:
                    send_signal_proven(victim.pid, victim.started_ticks, signal.SIGCONT)
    return client.heal(targets)
