"""Topologies in a line per component."""

from __future__ import annotations

from typing import Any

from squall import TopologyBuilder


def wired(**components: Any) -> TopologyBuilder:
    """Each component by its name: (spout, its tasks), or (bolt, its tasks, its inputs), such as "shuffle lines" or
    "fields split/errors word": a grouping, a source with its stream, and fields."""
    builder = TopologyBuilder()
    for name, (component, tasks, *inputs) in components.items():
        if not inputs:
            builder.set_spout(name, component, tasks)
            continue
        bolt = builder.set_bolt(name, component, tasks)
        for grouping, source, *fields in map(str.split, inputs):
            source, _, stream = source.partition("/")
            getattr(bolt, f"{grouping}_grouping")(source, *fields, stream=stream or "default")
    return builder
