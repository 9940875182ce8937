"""Squall: Apache Storm's idea for one multi-core machine, in Python.

Write spouts and bolts, connect them with a `TopologyBuilder`, and `run` the topology on worker processes; every record
is processed at least once. See README.md for a tour.

What runs clusters is imported when it is asked for, with ZeroMQ behind it: topology files and the pytest plugin do
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.api_collectors import BasicCollector, BoltCollector, SpoutCollector
from squall.engine.builder import BoltDeclarer, Declarer, TopologyBuilder
from squall.engine.component import BasicBolt, Bolt, CustomGrouping, Spout
from squall.engine.config import Config
from squall.engine.context import TopologyContext
from squall.engine.errors import (
    ClusterError,
    ComponentError,
    ConfigError,
    FailedTuple,
    ProtocolError,
    SquallError,
    TopologyError,
    UsageError,
)
from squall.engine.failure import Failure
from squall.engine.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from squall.engine.prefix import AckedPrefix
from squall.engine.replaying import ReplayingSpout
from squall.engine.report import RunReport
from squall.engine.stream import Stream
from squall.engine.topology import Topology
from squall.engine.tuple import Tuple
from squall.on_demand import on_demand

if TYPE_CHECKING:
    from squall.scheduler.cluster import LocalCluster, run
    from squall.scheduler.job import Job

_CLUSTER = "squall.scheduler.cluster"
_ON_DEMAND = {"Job": "squall.scheduler.job", "LocalCluster": _CLUSTER, "run": _CLUSTER}

__version__ = "0.1.0"

__all__ = [
    "AckedPrefix",
    "BasicBolt",
    "BasicCollector",
    "Bolt",
    "BoltAckInfo",
    "BoltCollector",
    "BoltDeclarer",
    "BoltExecuteInfo",
    "BoltFailInfo",
    "ClusterError",
    "ComponentError",
    "Config",
    "ConfigError",
    "CustomGrouping",
    "Declarer",
    "EmitInfo",
    "FailedTuple",
    "Failure",
    "Job",
    "LocalCluster",
    "ProtocolError",
    "ReplayingSpout",
    "RunReport",
    "Spout",
    "SpoutAckInfo",
    "SpoutCollector",
    "SpoutFailInfo",
    "SquallError",
    "Stream",
    "TaskHook",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyError",
    "Tuple",
    "UsageError",
    "run",
]

__getattr__ = on_demand(__name__, _ON_DEMAND)
