"""Connections to what is outside: queues, brokers, databases, programs in other languages (docs/connectors.md).

Each name is imported on first use, and with it the client library that it needs.
"""

from __future__ import annotations

from squall.engine.on_demand import TYPE_CHECKING, homes_in, on_demand

if TYPE_CHECKING:
    from squall.connect.durable_queue import Queue as Queue
    from squall.connect.http_sink import HttpSink as HttpSink
    from squall.connect.http_source import HttpSource as HttpSource
    from squall.connect.kafka import KafkaSink as KafkaSink
    from squall.connect.kafka import KafkaSource as KafkaSource
    from squall.connect.multilang.shell_bolt import ShellBolt as ShellBolt
    from squall.connect.multilang.shell_process import ShellError as ShellError
    from squall.connect.multilang.shell_spout import ShellSpout as ShellSpout
    from squall.connect.queue_ends import QueueSink as QueueSink
    from squall.connect.queue_ends import QueueSource as QueueSource
    from squall.connect.rabbit import RabbitSink as RabbitSink
    from squall.connect.rabbit import RabbitSource as RabbitSource
    from squall.connect.redis_streams import RedisSink as RedisSink
    from squall.connect.redis_streams import RedisSource as RedisSource
    from squall.connect.sink import Sink as Sink
    from squall.connect.source import Source as Source
    from squall.connect.source import Unreadable as Unreadable
    from squall.connect.sql import SqlSource as SqlSource
    from squall.engine.state.sinks import SqlSink as SqlSink

_HOMES = homes_in(__file__)

__all__ = list(_HOMES)

__getattr__ = on_demand(__name__, _HOMES)
