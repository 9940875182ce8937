"""Flame graphs of running workers, by py-spy (extra `ui`), which reads the process from outside and does not stop it.

Process: any of the owner's. Thread: any; `record` takes as long as it was told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.text import plain

MOST_SECS, _KEPT = 300.0, 8
_MARGIN_SECS = 60.0
"""For py-spy to begin and to draw, on a busy machine."""


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
