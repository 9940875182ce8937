"""Squall: Apache Storm's idea for one multi-core machine, in Python.

Write spouts and bolts, connect them with a `TopologyBuilder`, and `run` the topology on worker processes; every record
is processed at least once. See README.md for a tour.

Each name is imported on first use: the pytest plugin needs none of them, topology files need neither clusters nor
ZeroMQ, and the `squall` command must be able to take Ctrl-C before it has imported anything of length.
"""

from __future__ import annotations

from squall.engine.on_demand import TYPE_CHECKING, on_demand

# For type checkers; `X as X` makes X a name of this package.
if TYPE_CHECKING:
    from squall.engine.api.acked_prefix import AckedPrefix as AckedPrefix
    from squall.engine.api.async_component import AsyncBolt as AsyncBolt
    from squall.engine.api.async_component import AsyncSpout as AsyncSpout
    from squall.engine.api.collectors import BasicCollector as BasicCollector
    from squall.engine.api.collectors import BatchCollector as BatchCollector
    from squall.engine.api.collectors import BoltCollector as BoltCollector
    from squall.engine.api.collectors import SpoutCollector as SpoutCollector
    from squall.engine.api.columns import ColumnBatch as ColumnBatch
    from squall.engine.api.component import BasicBolt as BasicBolt
    from squall.engine.api.component import BatchBolt as BatchBolt
    from squall.engine.api.component import BatchSpout as BatchSpout
    from squall.engine.api.component import Bolt as Bolt
    from squall.engine.api.component import CustomGrouping as CustomGrouping
    from squall.engine.api.component import Spout as Spout
    from squall.engine.api.config import Config as Config
    from squall.engine.api.context import TopologyContext as TopologyContext
    from squall.engine.api.failure import Failure as Failure
    from squall.engine.api.functions import bolt as bolt
    from squall.engine.api.hooks import BoltAckInfo as BoltAckInfo
    from squall.engine.api.hooks import BoltExecuteInfo as BoltExecuteInfo
    from squall.engine.api.hooks import BoltFailInfo as BoltFailInfo
    from squall.engine.api.hooks import EmitInfo as EmitInfo
    from squall.engine.api.hooks import SpoutAckInfo as SpoutAckInfo
    from squall.engine.api.hooks import SpoutFailInfo as SpoutFailInfo
    from squall.engine.api.hooks import TaskHook as TaskHook
    from squall.engine.api.replaying import ReplayingSpout as ReplayingSpout
    from squall.engine.api.replaying import spout as spout
    from squall.engine.api.stream import Emit as Emit
    from squall.engine.api.stream import Stream as Stream
    from squall.engine.api.topology import Topology as Topology
    from squall.engine.api.tuple import Tuple as Tuple
    from squall.engine.api.user_metrics import DataPoint as DataPoint
    from squall.engine.api.user_metrics import LoggingMetricsConsumer as LoggingMetricsConsumer
    from squall.engine.api.user_metrics import MetricsConsumer as MetricsConsumer
    from squall.engine.api.user_metrics import TaskInfo as TaskInfo
    from squall.engine.build.builder import BoltDeclarer as BoltDeclarer
    from squall.engine.build.builder import Declarer as Declarer
    from squall.engine.build.builder import TopologyBuilder as TopologyBuilder
    from squall.engine.build.joins import JoinBolt as JoinBolt
    from squall.engine.build.streams import StreamBuilder as StreamBuilder
    from squall.engine.build.streams import session as session
    from squall.engine.build.streams import sliding as sliding
    from squall.engine.build.streams import tumbling as tumbling
    from squall.engine.errors import ClusterError as ClusterError
    from squall.engine.errors import ComponentError as ComponentError
    from squall.engine.errors import ConfigError as ConfigError
    from squall.engine.errors import FailedTuple as FailedTuple
    from squall.engine.errors import ProtocolError as ProtocolError
    from squall.engine.errors import SquallError as SquallError
    from squall.engine.errors import TopologyError as TopologyError
    from squall.engine.errors import Unavailable as Unavailable
    from squall.engine.errors import UsageError as UsageError
    from squall.engine.report.run_report import RunReport as RunReport
    from squall.engine.state.keyed import StatefulBatchBolt as StatefulBatchBolt
    from squall.engine.state.keyed import StatefulBolt as StatefulBolt
    from squall.engine.state.sinks import ExactSink as ExactSink
    from squall.engine.state.sinks import FileSink as FileSink
    from squall.engine.state.sinks import SqlSink as SqlSink
    from squall.engine.state.windowing.windows import Window as Window
    from squall.engine.state.windowing.windows import WindowedBolt as WindowedBolt
    from squall.pipeline.feed.feed_spout import FeedSpout as FeedSpout
    from squall.pipeline.parquet_sink import ParquetSink as ParquetSink
    from squall.pipeline.tail_spout import TailSpout as TailSpout
    from squall.scheduler.client.cluster import Cluster as Cluster
    from squall.scheduler.client.job import Job as Job
    from squall.scheduler.cluster.local_cluster import LocalCluster as LocalCluster
    from squall.scheduler.cluster.local_cluster import run as run

_HOMES = {
    "engine.api.async_component": "AsyncBolt AsyncSpout",
    "engine.build.builder": "BoltDeclarer Declarer TopologyBuilder",
    "engine.build.joins": "JoinBolt",
    "engine.build.streams": "StreamBuilder session sliding tumbling",
    "engine.api.collectors": "BasicCollector BatchCollector BoltCollector SpoutCollector",
    "engine.api.columns": "ColumnBatch",
    "engine.api.component": "BasicBolt BatchBolt BatchSpout Bolt CustomGrouping Spout",
    "engine.api.config": "Config",
    "engine.api.context": "TopologyContext",
    "engine.api.failure": "Failure",
    "engine.api.functions": "bolt",
    "engine.api.hooks": "BoltAckInfo BoltExecuteInfo BoltFailInfo EmitInfo SpoutAckInfo SpoutFailInfo TaskHook",
    "engine.api.acked_prefix": "AckedPrefix",
    "engine.api.user_metrics": "DataPoint LoggingMetricsConsumer MetricsConsumer TaskInfo",
    "engine.api.replaying": "ReplayingSpout spout",
    "engine.api.stream": "Emit Stream",
    "engine.api.topology": "Topology",
    "engine.api.tuple": "Tuple",
    "engine.errors":
        "ClusterError ComponentError ConfigError FailedTuple ProtocolError SquallError TopologyError Unavailable "
        "UsageError",
    "engine.state.keyed": "StatefulBatchBolt StatefulBolt",
    "engine.state.sinks": "ExactSink FileSink SqlSink",
    "engine.state.windowing.windows": "Window WindowedBolt",
    "engine.report.run_report": "RunReport",
    "pipeline.feed.feed_spout": "FeedSpout",
    "pipeline.parquet_sink": "ParquetSink",
    "pipeline.tail_spout": "TailSpout",
    "scheduler.client.cluster": "Cluster",
    "scheduler.client.job": "Job",
    "scheduler.cluster.local_cluster": "LocalCluster run",
}
_ON_DEMAND = {name: f"squall.{home}" for home, names in _HOMES.items() for name in names.split()}

__version__ = "0.1.0"

__all__ = list(_ON_DEMAND)

__getattr__ = on_demand(__name__, _ON_DEMAND)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
