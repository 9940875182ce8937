"""Squall: Apache Storm's idea for one multi-core machine, in Python.

Write spouts and bolts, connect them with a `TopologyBuilder`, and `run` the topology on worker processes; every record
is processed at least once. See README.md for a tour.

Each name is imported on first use: the pytest plugin needs none of them, topology files need neither clusters nor
ZeroMQ, and the `squall` command must be able to take Ctrl-C before it has imported anything of length.
"""

from __future__ import annotations

from squall.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from squall.engine.api.async_component import AsyncBolt, AsyncSpout
    from squall.engine.api.builder import BoltDeclarer, Declarer, TopologyBuilder
    from squall.engine.api.collectors import BasicCollector, BatchCollector, BoltCollector, SpoutCollector
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, CustomGrouping, Spout
    from squall.engine.api.config import Config
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure
    from squall.engine.api.function_bolt import bolt
    from squall.engine.api.function_spout import spout
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
    from squall.engine.api.stream import Emit, Stream
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
    from squall.engine.report.run_report import RunReport
    from squall.pipeline.feed.feed_spout import FeedSpout
    from squall.pipeline.sink.parquet_sink import ParquetSink
    from squall.pipeline.tail.tail_spout import TailSpout
    from squall.scheduler.client.cluster import Cluster
    from squall.scheduler.client.job import Job
    from squall.scheduler.cluster.local_cluster import LocalCluster, run

_HOMES = {
    "engine.api.async_component": "AsyncBolt AsyncSpout",
    "engine.api.builder": "BoltDeclarer Declarer TopologyBuilder",
    "engine.api.collectors": "BasicCollector BatchCollector BoltCollector SpoutCollector",
    "engine.api.columns": "ColumnBatch",
    "engine.api.component": "BasicBolt BatchBolt BatchSpout Bolt CustomGrouping Spout",
    "engine.api.config": "Config",
    "engine.api.context": "TopologyContext",
    "engine.api.failure": "Failure",
    "engine.api.function_bolt": "bolt",
    "engine.api.function_spout": "spout",
    "engine.api.hooks": "BoltAckInfo BoltExecuteInfo BoltFailInfo EmitInfo SpoutAckInfo SpoutFailInfo TaskHook",
    "engine.api.prefix": "AckedPrefix",
    "engine.api.replaying": "ReplayingSpout",
    "engine.api.stream": "Emit Stream",
    "engine.api.topology": "Topology",
    "engine.api.tuple": "Tuple",
    "engine.errors":
        "ClusterError ComponentError ConfigError FailedTuple ProtocolError SquallError TopologyError UsageError",
    "engine.report.run_report": "RunReport",
    "pipeline.feed.feed_spout": "FeedSpout",
    "pipeline.sink.parquet_sink": "ParquetSink",
    "pipeline.tail.tail_spout": "TailSpout",
    "scheduler.client.cluster": "Cluster",
    "scheduler.client.job": "Job",
    "scheduler.cluster.local_cluster": "LocalCluster run",
}
_ON_DEMAND = {name: f"squall.{home}" for home, names in _HOMES.items() for name in names.split()}

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
