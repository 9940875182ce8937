"""A kit for testing topologies: see docs/testing.md.

In this process, under a clock that the test moves: `complete_topology`, `SimulatedCluster`, `ManualClock`. Over real
worker processes: the pytest fixtures `squall_cluster` and `squall_chaos` (`squall.testing.plugin`). On both:
`FeederSpout`, `AckTracker`, `FixedSpout`, `wait_for`.

Each is imported on first use: the plugin is in this package, and every test run in this environment loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.on_demand import on_demand

if TYPE_CHECKING:
    from squall.engine.clock import ManualClock
    from squall.testing.complete import TopologyFailed, complete_topology
    from squall.testing.feeder import AckTracker, FeederSpout
    from squall.testing.fixed_spout import FixedSpout
    from squall.testing.simulated import SimulatedCluster
    from squall.testing.waiting import wait_for

__all__ = [
    "AckTracker",
    "FeederSpout",
    "FixedSpout",
    "ManualClock",
    "SimulatedCluster",
    "TopologyFailed",
    "complete_topology",
    "wait_for",
]

_HOMES = {
    "AckTracker": "squall.testing.feeder",
    "FeederSpout": "squall.testing.feeder",
    "FixedSpout": "squall.testing.fixed_spout",
    "ManualClock": "squall.engine.clock",
    "SimulatedCluster": "squall.testing.simulated",
    "TopologyFailed": "squall.testing.complete",
    "complete_topology": "squall.testing.complete",
    "wait_for": "squall.testing.waiting",
}

__getattr__ = on_demand(__name__, _HOMES)
