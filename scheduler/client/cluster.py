"""What a program does with a cluster that runs: submit topologies, find them, break things.

Guarantees: a mistake is a UsageError before the cluster changes. Thread: any one of the program's.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology, check_topology
from squall.engine.errors import ClusterError, UsageError
from squall.ipc.private import naming
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import START_SECS, NimbusClient
from squall.scheduler.client.standing import DIRECTORY_VARIABLE, connect_to, job_named, replace_named
from squall.scheduler.client.topology_code import is_installed, pack, submit
from squall.scheduler.common.logs import LogTail
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.faults.catalogue import Value
from squall.scheduler.faults.in_force import FaultInForce
from squall.scheduler.faults.sentence import Fault
from squall.scheduler.records.topology_files import left_by_earlier


class ClusterUse:
    """The common part of `LocalCluster` and `Cluster`."""

    run_dir: RunDir
    """The cluster's directory; its `path` is what `--dir` takes."""
    _client: NimbusClient | None
    _tail: LogTail | None

    @property
    def client(self) -> NimbusClient:
        """The connection to Nimbus, for requests for which this class has no method."""
        if self._client is None:
            raise ClusterError("this cluster is closed")
        return self._client

    def submit(
        self, name: str, topology: Topology, config: Config | None = None, by_value: ModuleType | None = None,
        active: bool = True, *, fresh: bool | None = None, replace: bool = False, wait_secs: float | None = None,
        remove_when_drained: bool = False,
    ) -> Job:
        """Submit a topology under a name that is free, and return its `Job`. `config` wins over the topology's own
        settings.

        With `active=False` its spouts wait for `Job.activate`. `fresh=True` drops the state that an earlier topology of
        this name left; by default it is taken up, with a Python warning, and with `fresh=False` without one. With
        `replace=True` a topology of this name is drained first, for at most `wait_secs` (its message timeout), and this
        one takes up its state; that goes on if this program ends meanwhile. With `remove_when_drained=True` it leaves
        by itself when its spouts are exhausted and nothing is pending. `by_value` is a module that workers cannot
        import.

        UsageError if the name is taken, or the topology cannot be sent.
        """
        if not isinstance(name, str):
            raise UsageError(f"the name of a topology is {name!r:.80}; allowed: a text")
        config = configured(topology, config)
        code = pack(topology, config, by_value, self._beside())
        takes_up = not fresh and bool(left_by_earlier(self.run_dir, name))
        if takes_up and fresh is None and not replace and name not in self.names():
            # Before the submission: a filter that makes an error of it then leaves the cluster as it was.
            warnings.warn(
                f"{name} takes up the state that an earlier {name} left in {self.run_dir.topology_state(name)}, and "
                f"goes on from there; fresh=True begins anew, fresh=False does without this warning",
                stacklevel=2,
            )

        def ask() -> TopologyRecord:
            return submit(
                self.client, name, config, code, status="ACTIVE" if active else "INACTIVE",
                fresh=bool(fresh), remove_when_drained=remove_when_drained, replace=replace,
                replace_wait_secs=wait_secs,
            )

        with naming(self.run_dir.path):
            record = replace_named(self.client, name, ask, wait_secs)[0] if replace else ask()
        job = Job(self.client, record)
        job.takes_up_state = takes_up
        self._made(job)
        return job

    def _made(self, job: Job) -> None:
        """Called with each `Job`. Whoever keeps it keeps its board mapped, which takes a descriptor."""

    def _beside(self) -> Path | None:
        """The directory whose modules travel along with a topology; None if they need not."""
        return None

    def job(self, name: str) -> Job:
        """Return the `Job` of a topology that runs. UsageError if there is none of this name."""
        job = job_named(self.client, name)
        self._made(job)
        return job

    def names(self) -> list[str]:
        """Return the names of the topologies, in the order of their submission."""
        return [record.name for record in self.client.get_cluster().topologies]

    def inject(
        self, fault: str, *targets: str, for_secs: float | None = None, probability: float | None = None,
        seed: int | None = None, **params: Value,
    ) -> list[FaultInForce]:
        """Inject a fault now, such as `inject("kill", "node-1:6700")` or `inject("slow", "count", ms=5)`; `squall
        faults` lists them all with their parameters.

        A lasting fault ends after `for_secs`, by default the catalogue's time, or by `heal`. A worker that was just
        submitted is waited for, for at most 60 s. UsageError if fault, target or parameter is wrong; ClusterError if a
        target is dead at the moment.
        """
        texts = {name: str(value) for name, value in params.items()}
        return self.client.inject(
            Fault(fault, targets, for_secs=for_secs, probability=probability, params=texts, seed=seed), START_SECS
        )

    def heal(self, *targets: str) -> list[FaultInForce]:
        """End every fault in force; with `targets`, only faults that were begun with exactly these. Returns them."""
        return self.client.heal(targets)

    def new_log_lines(self) -> list[tuple[str, str]]:
        """Return (worker, line) for each line of workers' output since the last call."""
        return [] if self._tail is None else self._tail.poll()


class Cluster(ClusterUse):
    """A program's connection to a standing cluster, made by `Cluster.connect`. A context manager that disconnects.

    It has the methods of `LocalCluster`, but `close`, and the end of the program, leave its topologies running. Threads
    may share it.
    """

    def __init__(self, client: NimbusClient) -> None:
        self.run_dir, self._client = client.run_dir, client
        self._tail = LogTail(client.run_dir.logs)

    @classmethod
    def connect(cls, dir: str | Path | None = None) -> Cluster:
        """Connect to the cluster that `squall up` started in `dir`; by default in $SQUALL_DIR, or the user's own. A
        Nimbus that is being restarted is waited for, for up to 5 s. UsageError if no cluster runs there."""
        return cls(connect_to(dir or os.environ.get(DIRECTORY_VARIABLE) or None))

    def _beside(self) -> Path | None:
        # Its workers start after this program has ended, too: modules beside the program travel along.
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        directory = None if file is None else Path(file).resolve().parent
        return None if directory is None or is_installed(directory) else directory

    def close(self) -> None:
        """Disconnect; everything runs on."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def configured(topology: Topology, config: Config | None) -> Config:
    """The settings that a topology is run with. UsageError if it is none."""
    check_topology("submit", topology)
    return topology.configured(config)
