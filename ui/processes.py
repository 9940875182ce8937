"""The processes of a cluster with the time and memory that they take, for pages.

Guarantees: however many ask, they are looked at once in `_INTERVAL_SECS`, because a look reads every process of the
machine. Thread: any.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import psutil

from squall.engine.report.document import to_document
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import describe_processes
from squall.scheduler.common.role import processes_of, role_of

_INTERVAL_SECS = 2.0


class Processes:
    """Those of one cluster."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._at_secs = -float("inf")
        self._spent: dict[int, tuple[float, float]] = {}
        """Pid -> when it was looked at, and the seconds of CPU that it had taken."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for each, in the order of roles and names; `cpu_percent` is null at the first look, 100 is one core."""
        with self._lock:
            if time.monotonic() - self._at_secs >= _INTERVAL_SECS:
                self._rows, self._at_secs = self._look(), time.monotonic()
            return self._rows

    def _look(self) -> list[dict[str, Any]]:
        rows, spent = [], {}
        own = psutil.Process()
        for row in describe_processes([*processes_of(self._run_dir), *([own] if role_of(own) is not None else [])]):
            with contextlib.suppress(psutil.Error, OSError):
                times, now = psutil.Process(row.pid).cpu_times(), time.monotonic()
                spent[row.pid] = now, times.user + times.system
                before = self._spent.get(row.pid)
                rows.append({
                    "name": ":".join(str(part) for part in (row.node, row.port) if part is not None),
                    **to_document(row), "topology": row.topology or "",
                    "cpu_percent": round((spent[row.pid][1] - before[1]) / (now - before[0]) * 100, 1)
                    if before else None,
                })
        self._spent = spent
        return rows
