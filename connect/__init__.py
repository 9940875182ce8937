"""Connections to what is outside: queues, brokers, databases, programs in other languages (docs/connectors.md).

Each name is imported on first use, and with it the client library that it needs.
"""

from __future__ import annotations

from squall.engine.on_demand import on_demand

_HOMES: dict[str, str] = {}

__all__ = list(_HOMES)

__getattr__ = on_demand(__name__, _HOMES)
