"""Cluster: a program's connection to a standing cluster.

Guarantees: what `LocalCluster` can do, but for the cluster's end: `close`, and the end of the program, leave its
topologies running. Without a cluster, `connect` raises one UsageError, which says how to start it. A Nimbus that is
being restarted is waited for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from squall.ipc.rundir import RunDir
from squall.scheduler.client.cluster_use import ClusterUse
from squall.scheduler.client.log_tail import LogTail
from squall.scheduler.client.nimbus_client import NimbusClient
from squall.scheduler.client.standing import DIRECTORY_VARIABLE, connect_to
from squall.scheduler.client.topology_code import is_installed


class Cluster(ClusterUse):
    """Made by `Cluster.connect`. A context manager that disconnects."""

    def __init__(self, run_dir: RunDir, client: NimbusClient) -> None:
        self.run_dir, self._client = run_dir, client
        self._jobs = []
        self._tail = LogTail(run_dir.logs)

    @classmethod
    def connect(cls, dir: str | Path | None = None) -> Cluster:
        """Connect to the cluster that `squall up` started in `dir`; by default in $SQUALL_DIR, or the user's own."""
        return cls(*connect_to(dir or os.environ.get(DIRECTORY_VARIABLE) or None))

    def _beside(self) -> Path | None:
        # Its workers start after this program has ended, too: modules beside the program travel along.
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        directory = None if file is None else Path(file).resolve().parent
        return None if directory is None or is_installed(directory) else directory

    def close(self) -> None:
        """Disconnect; everything runs on."""
        for job in self._jobs:
            job.close()
        self._jobs.clear()
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
