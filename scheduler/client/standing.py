"""Finds a standing cluster: its directory, its Nimbus, its topologies.

Guarantees: a cluster that is not there is one UsageError, which says how to start it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from squall.engine.errors import UsageError
from squall.engine.report.metrics import Unfinished
from squall.ipc.run_parent import standing_directory
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import STOP_GRACE_SECS, Job
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient, NoCluster, OnWait
from squall.scheduler.common.messages import TopologyRecord

DIRECTORY_VARIABLE = "SQUALL_DIR"


def cluster_path(directory: str | Path | None) -> Path:
    """The directory of the cluster that the user chose."""
    return standing_directory() if directory is None else Path(directory)


def open_cluster(directory: str | Path | None) -> RunDir:
    """Open the run directory of a cluster that is or was there."""
    path = cluster_path(directory)
    if not path.exists() or _is_empty(path):
        raise UsageError(f"there is no cluster at {path}: {start_hint(directory)}")
    return RunDir.open(path)


def _is_empty(path: Path) -> bool:
    """Whether it is a directory for a cluster that was never started, such as a container's volume."""
    return path.is_dir() and os.access(path, os.R_OK) and not any(path.iterdir())


def start_hint(directory: str | Path | None) -> str:
    where = "" if directory is None else f" --dir {shlex.quote(str(directory))}"
    return f"start one with `squall up{where}`"


def connect_to(directory: str | Path | None, on_away: Callable[[], None] = lambda: None) -> NimbusClient:
    """Connect to the running cluster; `on_away` is called before a wait for a Nimbus that is being restarted."""
    run_dir = open_cluster(directory)
    try:
        return patient_client(run_dir, on_away)
    except NoCluster as error:
        raise UsageError(f"{error}: {start_hint(directory)}") from None


def patient_client(run_dir: RunDir, on_away: Callable[[], None]) -> NimbusClient:
    """Connect to Nimbus; if it is away, wait a moment."""
    return NimbusClient(run_dir, patience_secs=AWAY_PATIENCE_SECS, on_away=on_away)


def replace_named(
    client: NimbusClient, name: str, submit: Callable[[], TopologyRecord],
    wait_secs: float | None = None, on_wait: OnWait = None,
) -> tuple[TopologyRecord, Unfinished | None]:
    """Have a topology submitted in the place of the one of that name, and wait until it is there.

    Returns it, and what the one before has left; None if there was none. When `on_wait` returns True, Interrupted is
    raised; Nimbus goes on all the same."""
    if name not in [record.name for record in client.get_cluster().topologies]:
        record = submit()
        # Another program may have submitted one in this moment.
        client.await_begun(record, limit_secs(wait_secs, record) + STOP_GRACE_SECS, on_wait)
        return record, None
    job = job_named(client, name)
    try:
        return job.give_way(submit, limit_secs(wait_secs, job.record), on_wait)
    finally:
        job.close()


def limit_secs(wait_secs: float | None, record: TopologyRecord) -> float:
    """Return the longest wait for pending messages: by default, as in Storm, the message timeout."""
    return float(record.conf["message_timeout_secs"]) if wait_secs is None else wait_secs


def job_named(client: NimbusClient, name: str) -> Job:
    """A topology of the cluster, whose time counts since it was submitted."""
    record = client.get_topology(name).topology
    return Job(client, record, time.monotonic() - uptime_secs(record))


def uptime_secs(record: TopologyRecord) -> float:
    """Seconds since a topology was submitted; never negative, even if the clock was set back."""
    return max(0.0, time.time() - record.created_unix_secs)
