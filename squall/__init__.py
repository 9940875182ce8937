"""Squall: Apache Storm's idea for one multi-core machine, in Python.

Write spouts and bolts, connect them with a `TopologyBuilder`, and `run` the topology on worker processes; every record
is processed at least once. See README.md for a tour.

What runs clusters is imported when it is asked for, with ZeroMQ behind it: topology files and the pytest plugin do
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.builder import BoltDeclarer, Declarer, TopologyBuilder
from engine.collectors import BasicCollector, BoltCollector, SpoutCollector
from engine.component import BasicBolt, Bolt, CustomGrouping, Spout
from engine.config import Config
from engine.context import TopologyContext
from engine.errors import (
    ClusterError,
    ComponentError,
    ConfigError,
    FailedTuple,
    ProtocolError,
    SquallError,
    TopologyError,
    UsageError,
)
from engine.failure import Failure
from engine.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from engine.prefix import AckedPrefix
from engine.replaying import ReplayingSpout
from engine.report import RunReport
from engine.stream import Stream
from engine.topology import Topology
from engine.tuple import Tuple
from squall.on_demand import on_demand

if TYPE_CHECKING:
    from scheduler.cluster import LocalCluster, run
    from scheduler.job import Job

_ON_DEMAND = {"Job": "scheduler.job", "LocalCluster": "scheduler.cluster", "run": "scheduler.cluster"}

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
