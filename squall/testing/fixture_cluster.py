"""The object of fixture `squall_cluster`: real processes for one test, and a check for leftovers.

Guarantees: `end` names and removes everything left after an orderly close: processes of the cluster and processes that
components started, the run directory, descriptors of this process that are open in it.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.scheduler.client.job import Job
from squall.scheduler.cluster.local_cluster import LocalCluster
from squall.testing.leftovers import left_behind


class FixtureCluster(LocalCluster):
    """A `LocalCluster` that sends the components of the test's own module by value: workers cannot import it."""

    def __init__(self, module: ModuleType | None, *, nodes: int = 1, slots_per_node: int = 2) -> None:
        self._module = module
        super().__init__(nodes, slots_per_node)

    def submit(
        self, name: str, topology: Topology, config: Config | None = None, by_value: ModuleType | None = None,
        active: bool = True, **options: Any,
    ) -> Job:
        return super().submit(name, topology, config, by_value or self._module, active, **options)

    def end(self) -> list[str]:
        """Close the cluster. Returns a line for each leftover."""
        self.close()
        return left_behind(self.run_dir)
