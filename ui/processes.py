"""The processes of a cluster with the time and memory that they take, for pages; and flame graphs of workers, by py-spy
(extra `ui`), which reads a process from outside and does not stop it.

Guarantees: however many ask, they are looked at once in `_INTERVAL_SECS`, because a look reads every process of the
machine. Thread: any; `record` takes as long as it was told.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import plain
from squall.engine.report.document import to_document
from squall.ipc.rundir import RunDir
from squall.scheduler.client.described import describe_processes
from squall.scheduler.common.role import processes_of, role_of

_INTERVAL_SECS = 2.0
MOST_SECS, _KEPT = 300.0, 8
_MARGIN_SECS = 60.0
"""For py-spy to begin and to draw, on a busy machine."""


class Processes:
    """Those of one cluster."""

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._at_secs = -float("inf")
        self._seen: dict[int, psutil.Process] = {}
        """By pid; each knows what CPU it had taken when it was asked last."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for each, in the order of roles and names; `cpu_percent` is null at the first look, 100 is one core."""
        with self._lock:
            if time.monotonic() - self._at_secs >= _INTERVAL_SECS:
                self._rows, self._at_secs = self._look(), time.monotonic()
            return self._rows

    def _look(self) -> list[dict[str, Any]]:
        rows, seen = [], {}
        own = psutil.Process()
        for row in describe_processes([*processes_of(self._run_dir), *([own] if role_of(own) is not None else [])]):
            with contextlib.suppress(psutil.Error, OSError):
                process = seen[row.pid] = self._seen.get(row.pid) or psutil.Process(row.pid)
                cpu_percent = process.cpu_percent()
                rows.append({
                    "name": ":".join(str(part) for part in (row.node, row.port) if part is not None),
                    **to_document(row), "topology": row.topology or "",
                    "cpu_percent": cpu_percent if row.pid in self._seen else None,
                })
        self._seen = seen
        return rows


def record(pid: int, secs: float, out: Path) -> None:
    """Write a flame graph, as SVG, of where a process spends the next `secs` seconds. UsageError without py-spy,
    ClusterError if the process cannot be looked into."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise UsageError("py-spy is not installed: pip install 'squall[ui]'")
    whole = max(1, round(secs))  # py-spy knows whole seconds only
    line = [program, "record", "--pid", f"{pid}", "--duration", f"{whole}", "--output", str(out), "--nonblocking"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=whole + _MARGIN_SECS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"py-spy was not ready {_MARGIN_SECS:g} s after its time") from None
    if done.returncode == 0 and out.exists():
        return
    said = plain(next((line for line in done.stderr.splitlines() if line.startswith("Error: ")), done.stderr))
    if "No stack counts" in done.stderr:
        said = "it did nothing in that time"
    elif "ermission" in done.stderr or "not permitted" in done.stderr:
        said = "the system refuses (ptrace): sysctl kernel.yama.ptrace_scope=0, or as root; in a container SYS_PTRACE"
    raise ClusterError(f"process {pid} cannot be profiled: {said}")


class Profiles:
    """The last flame graphs that pages and programs have asked for. One is drawn at a time."""

    def __init__(self) -> None:
        self._drawn: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def draw(self, pid: int, secs: float) -> str:
        """Draw one; returns its id. UsageError if another is being drawn, or for more than MOST_SECS; otherwise as
        `record`."""
        if not 0.0 < secs <= MOST_SECS:
            raise UsageError(f"a profile of {secs:g} s; allowed: above 0 up to {MOST_SECS:g} s")
        if not self._lock.acquire(blocking=False):
            raise UsageError("another profile is being drawn: wait for its end")
        try:
            with tempfile.TemporaryDirectory() as folder:
                record(pid, secs, file := Path(folder, "profile.svg"))
                profile_id = os.urandom(4).hex()
                self._drawn[profile_id] = file.read_bytes()
            for old in list(self._drawn)[:-_KEPT]:
                del self._drawn[old]
        finally:
            self._lock.release()
        return profile_id

    def svg(self, profile_id: str) -> bytes | None:
        """A flame graph; None if there is none of this id, or not any more."""
        return self._drawn.get(profile_id)
