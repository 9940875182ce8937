"""A kit for testing topologies: see docs/testing.md.

In this process, under a clock that the test moves: `complete_topology`, `SimulatedCluster`, `ManualClock`. Over real
worker processes: the pytest fixtures `squall_cluster` and `squall_chaos` (`squall.testing.plugin`), and the checks of
sources and sinks, `check_source` and `check_sink`. On both:
`FeederSpout`, `AckTracker`, `FixedSpout`, `wait_for`.

Each is imported on first use: the plugin is in this package, and every test run in this environment loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.on_demand import on_demand

if TYPE_CHECKING:
    from squall.engine.clock import ManualClock as ManualClock
    from squall.testing.complete import TopologyFailed as TopologyFailed
    from squall.testing.complete import complete_topology as complete_topology
    from squall.testing.conformance import check_sink as check_sink
    from squall.testing.conformance import check_source as check_source
    from squall.testing.simulated import SimulatedCluster as SimulatedCluster
    from squall.testing.spouts import AckTracker as AckTracker
    from squall.testing.spouts import FeederSpout as FeederSpout
    from squall.testing.spouts import FixedSpout as FixedSpout
    from squall.testing.spouts import wait_for as wait_for

_HOMES = {
    "AckTracker": "squall.testing.spouts",
    "FeederSpout": "squall.testing.spouts",
    "FixedSpout": "squall.testing.spouts",
    "ManualClock": "squall.engine.clock",
    "SimulatedCluster": "squall.testing.simulated",
    "TopologyFailed": "squall.testing.complete",
    "check_sink": "squall.testing.conformance",
    "check_source": "squall.testing.conformance",
    "complete_topology": "squall.testing.complete",
    "wait_for": "squall.testing.spouts",
}

__all__ = list(_HOMES)

__getattr__ = on_demand(__name__, _HOMES)
