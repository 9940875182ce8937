"""Injects faults into a worker that starts: code that is bad, a configuration that is bad.

Guarantees: a worker that is started when the fault has ended starts as ever. A fault is on record before it happens.
Without faults this costs a look for a file that is not there.

Thread: the worker's only one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from squall.engine.errors import ClusterError
from squall.engine.foreign.plain_text import plain
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import read_faults
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.faults.in_force import FaultInForce
from squall.scheduler.worker.faults import InjectedFault, put_on_record

_CODE, _CONFIG = "bad-code", "bad-config"
_LOAD, _PREPARE = "load", "prepare"
"""Values of the parameter `fails` of bad code."""


class StartFaults:
    """The faults of one worker's start."""

    def __init__(self, run_dir: RunDir, boot: WorkerBoot, tell: Callable[[str], None]) -> None:
        """`tell` writes a line to the worker's log."""
        self._run_dir = run_dir
        self._boot = boot
        self._tell = tell
        executors = boot.assignment.executors[boot.slot_index]
        mine = {task for each in executors for task in range(each.first_task, each.last_task + 1)}
        self._known = [
            fault for fault in self._read()
            if fault.topology_id == boot.topology.id and not mine.isdisjoint(fault.tasks)
        ]  # fmt: skip

    def config(self, conf: dict[str, Any]) -> dict[str, Any]:
        """The configuration that the worker is given instead of this one."""
        for fault in self._in_force(_CONFIG):
            self._note(fault)
            conf = {**conf, str(fault.params["setting"]): fault.params["value"]}
        return conf

    def code(self, code: bytes) -> bytes:
        """The code that the worker is given instead of this."""
        for fault in self._in_force(_CODE, _LOAD):
            self._note(fault)
            code = code[: len(code) // 2]
        return code

    def opening(self, task: int) -> None:
        """Called as if it were the first line of a task's `open` or `prepare`."""
        for fault in self._in_force(_CODE, _PREPARE):
            if task in fault.tasks:
                self._note(fault)
                raise InjectedFault(f"fault {fault.id} of kind {fault.kind}")

    def _read(self) -> list[FaultInForce]:
        try:
            return read_faults(self._run_dir)
        except ClusterError as error:
            self._tell(f"{self._boot.node}:{self._boot.port}: {plain(error)}")
            return []

    def _in_force(self, kind: str, fails: str | None = None) -> Iterator[FaultInForce]:
        now = time.monotonic()
        for fault in self._known:
            if fault.kind == kind and fault.is_in_force(now) and fails in (None, fault.params.get("fails")):
                yield fault

    def _note(self, fault: FaultInForce) -> None:
        put_on_record(self._run_dir, self._boot, fault, self._tell)
