"""Squall: Apache Storm's idea for one multi-core machine, in Python.

Write spouts and bolts, connect them with a `TopologyBuilder`, and `run` the topology on worker processes; every record
is processed at least once. See README.md for a tour.

The parts that run clusters or read feeds, and ZeroMQ, are imported on first use: topology files and the pytest plugin
do not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.api.builder import BoltDeclarer, Declarer, TopologyBuilder
from squall.engine.api.collectors import BasicCollector, BatchCollector, BoltCollector, SpoutCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, CustomGrouping, Spout
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.emit import Emit
from squall.engine.api.failure import Failure
from squall.engine.api.functions import bolt, spout
from squall.engine.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    EmitInfo,
    SpoutAckInfo,
    SpoutFailInfo,
    TaskHook,
)
from squall.engine.api.prefix import AckedPrefix
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.stream import Stream
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
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
from squall.on_demand import on_demand

if TYPE_CHECKING:
    from squall.engine.report.run_report import RunReport
    from squall.pipeline.feed_spout import FeedSpout
    from squall.pipeline.live_spout import LiveSpout
    from squall.pipeline.parquet_sink import ParquetSink
    from squall.pipeline.tail_spout import TailSpout
    from squall.scheduler.client.cluster import Cluster
    from squall.scheduler.client.job import Job
    from squall.scheduler.cluster.local_cluster import LocalCluster, run

_CLUSTER = "squall.scheduler.cluster.local_cluster"
_ON_DEMAND = {
    "Cluster": "squall.scheduler.client.cluster", "FeedSpout": "squall.pipeline.feed_spout",
    "Job": "squall.scheduler.client.job", "LiveSpout": "squall.pipeline.live_spout", "LocalCluster": _CLUSTER,
    "ParquetSink": "squall.pipeline.parquet_sink", "RunReport": "squall.engine.report.run_report",
    "TailSpout": "squall.pipeline.tail_spout", "run": _CLUSTER,
}

__version__ = "0.1.0"

__all__ = [
    "AckedPrefix",
    "AsyncBolt",
    "AsyncSpout",
    "BasicBolt",
    "BasicCollector",
    "BatchBolt",
    "BatchCollector",
    "BatchSpout",
    "Bolt",
    "BoltAckInfo",
    "BoltCollector",
    "BoltDeclarer",
    "BoltExecuteInfo",
    "BoltFailInfo",
    "Cluster",
    "ClusterError",
    "ColumnBatch",
    "ComponentError",
    "Config",
    "ConfigError",
    "CustomGrouping",
    "Declarer",
    "Emit",
    "EmitInfo",
    "FailedTuple",
    "Failure",
    "FeedSpout",
    "Job",
    "LiveSpout",
    "LocalCluster",
    "ParquetSink",
    "ProtocolError",
    "ReplayingSpout",
    "RunReport",
    "Spout",
    "SpoutAckInfo",
    "SpoutCollector",
    "SpoutFailInfo",
    "SquallError",
    "Stream",
    "TailSpout",
    "TaskHook",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "TopologyError",
    "Tuple",
    "UsageError",
    "bolt",
    "run",
    "spout",
]

__getattr__ = on_demand(__name__, _ON_DEMAND)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
