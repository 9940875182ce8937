"""The cluster behind the fixture `squall_cluster`: real processes for one test, and a look at what they left.

Guarantees: `end` returns what was left behind after an orderly close, each thing named, and removes it: processes of
the cluster and processes that components started, the run directory, descriptors of this process that are open in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import ModuleType

import psutil

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.scheduler.common.mark import processes_of, signal_marked

_PATIENCE_SECS = 5.0
"""A process that was told to end takes a moment, longer on a busy machine."""
_POLL_SECS = 0.02


class FixtureCluster(LocalCluster):
    """A `LocalCluster` that sends the components of the test's own module by value: workers cannot import it."""

    def __init__(self, nodes: int, slots_per_node: int, module: ModuleType | None) -> None:
        self._module = module
        super().__init__(nodes, slots_per_node)

    def submit(
        self, name: str, topology: Topology, config: Config | None = None, by_value: ModuleType | None = None,
        active: bool = True,
    ) -> Job:
        return super().submit(name, topology, config, by_value or self._module, active)

    def end(self) -> list[str]:
        """Close; what was left behind, a line each."""
        self.close()
        deadline = time.monotonic() + _PATIENCE_SECS
        while (left := processes_of(self.run_dir)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECS)
        lines = [_described(process) for process in left]
        for process in left:
            signal_marked(process, self.run_dir, signal.SIGKILL)
        if self.run_dir.path.exists():
            lines.append(f"directory {self.run_dir.path}")
        return lines + self._descriptors()

    def _descriptors(self) -> list[str]:
        lines = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile, as the one that lists this directory
                target = os.readlink(f"/proc/self/fd/{number}")
                if target.startswith(f"{self.run_dir.path}/"):
                    lines.append(f"descriptor {number} of this process: {target}")
        return lines


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"process {process.pid}, which ended just now"
