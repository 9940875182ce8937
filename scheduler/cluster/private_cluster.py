"""PrivateCluster: a cluster for the life of one program, in an anonymous run directory.

Guarantees
    * A keeper replaces every daemon that dies, as after `squall up`.
    * When `close` returns, the cluster has ended: by itself, or by force, and then it says why. When the program dies
      in any way, the cluster ends.
    * The directory stays until `remove`, so that what the cluster left in it can be examined.

Thread: any one of the program's.
"""

from __future__ import annotations

from types import ModuleType

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.ipc.private import naming
from squall.ipc.rundir import RunDir
from squall.scheduler.client.job import Job
from squall.scheduler.client.nimbus_client import AWAY_PATIENCE_SECS, NimbusClient
from squall.scheduler.client.topology_code import pack, submit
from squall.scheduler.cluster.keeper_process import KeeperProcess
from squall.scheduler.cluster.size import check_cluster
from squall.scheduler.cluster.stopping import STOP_GRACE_SECS, stop_bound
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.in_force import FaultInForce


class PrivateCluster:
    """Keeper, Nimbus and supervisors."""

    def __init__(self, nodes: int, slots_per_node: int) -> None:
        check_cluster(nodes, slots_per_node)
        self._keeper = KeeperProcess(keep_dir=True)
        self.run_dir: RunDir = self._keeper.run_dir
        self._jobs: list[Job] = []
        self._closed = False
        try:
            self._keeper.start(nodes, slots_per_node)
            self.client = NimbusClient(self.run_dir, patience_secs=AWAY_PATIENCE_SECS, is_own=True)
        except BaseException:
            self._keeper.close()
            self.run_dir.remove()
            raise

    def submit(self, name: str, topology: Topology, config: Config, by_value: ModuleType | None = None) -> Job:
        """Submit a topology; `by_value` is a module that workers cannot import."""
        code = pack(topology, config, by_value)
        with naming(self.run_dir.path):
            record = submit(self.client, self.run_dir, name, config, code)
        job = Job(self.client, record, self.run_dir)
        self._jobs.append(job)
        return job

    def inject(self, fault: Fault) -> list[FaultInForce]:
        """Begin a fault now, whenever its own time is."""
        return self.client.inject(fault)

    def heal(self) -> list[FaultInForce]:
        """End every fault in force; returns them."""
        return self.client.heal()

    def close(self, grace_secs: float = STOP_GRACE_SECS) -> str:
        """Stop workers, by force after `grace_secs`, and daemons. Returns the reason why that took force; "" if none.

        May be called again.
        """
        if self._closed:
            return ""
        self._closed = True
        for job in self._jobs:
            job.close()
        return stop_bound(self._keeper, self.client, grace_secs)

    def remove(self) -> None:
        """Remove the directory. After `close`."""
        self.run_dir.remove()
