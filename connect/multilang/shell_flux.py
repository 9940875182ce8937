"""FluxShellSpout and FluxShellBolt: ShellSpout and ShellBolt with the methods that Flux files of Storm call.

Thread: that which makes the topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.connect.multilang.shell_bolt import ShellBolt
from squall.connect.multilang.shell_component import ShellComponent
from squall.connect.multilang.shell_spout import ShellSpout
from squall.engine.api.stream import DEFAULT_STREAM, Stream, parse_outputs


class FluxShell(ShellComponent):
    """Storm's `configMethods` of a component in another language; the names are Storm's."""

    def setDefaultStream(self, *direct_and_fields: Any) -> None:  # noqa: N802
        """Declare the fields of the default stream, after True if it is a direct one."""
        self.setNamedStream(DEFAULT_STREAM, *direct_and_fields)

    def setNamedStream(self, name: str, *direct_and_fields: Any) -> None:  # noqa: N802
        """Declare the fields of a stream, after True if it is a direct one."""
        *direct, fields = direct_and_fields
        declared: Sequence[str] = fields
        self.outputs = {**parse_outputs(self.outputs), name: Stream(*declared, direct=any(direct))}

    def addComponentConfig(self, key: str, value: Any) -> None:  # noqa: N802
        """Set a setting of the component."""
        self.component_config = {**self.component_config, key: value}


class FluxShellSpout(FluxShell, ShellSpout):
    """Stands for Storm's class of this name."""


class FluxShellBolt(FluxShell, ShellBolt):
    """Stands for Storm's class of this name."""
