"""Connections to what is outside: queues, brokers, databases, programs in other languages (docs/connectors.md).

Each name is imported on first use, and with it the client library that it needs.
"""

from __future__ import annotations

from squall.engine.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from squall.connect.kafka import KafkaSink as KafkaSink
    from squall.connect.kafka import KafkaSource as KafkaSource
    from squall.connect.sink import Sink as Sink
    from squall.connect.source import Source as Source
    from squall.connect.source import Unreadable as Unreadable

_HOMES = {
    "KafkaSink": "squall.connect.kafka",
    "KafkaSource": "squall.connect.kafka",
    "Unreadable": "squall.connect.source",
    "Sink": "squall.connect.sink",
    "Source": "squall.connect.source",
}

__all__ = list(_HOMES)

__getattr__ = on_demand(__name__, _HOMES)
