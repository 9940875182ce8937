"""Shows faults in force, for people and for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from squall.engine.plural import plural
from squall.ipc.rundir import RunDir
from squall.scheduler.faults.in_force import FaultInForce, faults_now


def who(faults: Sequence[FaultInForce]) -> str:
    """The targets of faults, for people."""
    names = [name for fault in faults for name in _whom(fault)]
    return ", ".join(dict.fromkeys(names)) or "nobody"


def _whom(fault: FaultInForce) -> list[str]:
    if fault.victims:
        return [f"{victim.name} (pid {victim.pid})" for victim in fault.victims]
    if fault.tasks:
        return [plural(len(fault.tasks), "task") + f" of {' '.join(fault.targets)}"]
    if fault.links:
        return [f"{link.sender} -> {link.receiver}" for link in fault.links]
    return list(fault.targets)


def documents(faults: Sequence[FaultInForce]) -> list[dict[str, Any]]:
    """Faults, for programs."""
    return [msgspec.to_builtins(fault) for fault in faults]


def faults_in_force(run_dir: RunDir) -> list[dict[str, Any]]:
    """The faults now in force in all topologies and daemons: for programs, and for `fault_lines`."""
    now = time.monotonic()
    return [
        {
            "id": fault.id, "kind": fault.kind, "targets": fault.targets, "hits": who([fault]),
            "left_secs": round(fault.left_secs(now), 1), "params": fault.params, "probability": fault.probability,
        }
        for fault in faults_now(run_dir, now)
    ]


def fault_lines(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Lines for people; none if no fault is in force."""
    return [
        f"broken on purpose: {row['kind']} {row['hits']}, {row['left_secs']:g} s left (squall heal ends it)"
        for row in documents
    ]
