"""Connections to what is outside: queues, brokers, databases, programs in other languages (docs/connectors.md).

Each name is imported on first use, and with it the client library that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.on_demand import on_demand

if TYPE_CHECKING:
    from squall.connect.shell_bolt import ShellBolt as ShellBolt
    from squall.connect.shell_process import ShellError as ShellError
    from squall.connect.shell_spout import ShellSpout as ShellSpout

_HOMES: dict[str, str] = {
    "ShellBolt": "squall.connect.shell_bolt",
    "ShellError": "squall.connect.shell_process",
    "ShellSpout": "squall.connect.shell_spout",
}

__all__ = list(_HOMES)

__getattr__ = on_demand(__name__, _HOMES)
