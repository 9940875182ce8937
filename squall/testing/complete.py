"""complete_topology: runs a whole topology in this process, and returns the tuples that each component emitted.

Guarantees: only the spouts named in `sources` are changed; the same seed and input give the same run; time is
simulated, so nothing waits. It either returns with every message acked or raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import TIMEOUT, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.topology import ComponentSpec, Topology, check_topology
from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.state.records.identified import in_place_of
from squall.engine.state.records.lineage import plain_outputs
from squall.testing.simulated import SimulatedCluster
from squall.testing.spouts import FixedSpout

_SHOWN = 5


class TopologyFailed(SquallError):
    """A message was not processed. `failures` holds (spout, message id, reason) of each."""

    def __init__(self, text: str, failures: list[tuple[str, Any, Failure]]) -> None:
        self.failures = failures
        """(spout, message id, failure) of each message."""
        super().__init__(text)


def complete_topology(
    topology: Topology, sources: Mapping[str, Iterable[Any]] | None = None, config: Config | None = None, *,
    timeout_secs: float = 3600.0,
) -> dict[str, list[tuple[Any, ...]]]:
    """Run `topology` until everything is processed. Returns every emitted tuple, by stream.

    `sources` gives the tuples that a spout emits instead of its own, under its id for the default stream and as
    "spout/stream" for another; such a spout has one task. Other spouts must be finite. The result has the same keys,
    with an entry for every stream that a component declares.

    Raises TopologyFailed when a message of a named spout fails or is never acked, or when one of another spout failed
    and was not acked later; TaskCrashed when a component raises and `on_error` is "crash"; UsageError for a source that
    does not fit; ClusterError when the topology is not drained within `timeout_secs` of simulated time.
    """
    check_topology("complete_topology", topology)
    spouts = _fixed_spouts(topology, sources or {})
    fixed = replace(topology, components={**topology.components, **spouts})
    with SimulatedCluster(fixed, config, name="complete") as cluster:
        try:
            cluster.run_until(
                lambda: cluster.drained or any(spout in spouts for spout, _, _ in cluster.failed), timeout_secs,
                "it was drained",
            )
        except ClusterError as error:
            raise ClusterError("; ".join([str(error), *_described(cluster.failed), _what_hangs(cluster)])) from None
        if failures := cluster.failed:
            timed_out = any(failure.reason == TIMEOUT for _, _, failure in failures)
            said = [*_described(failures), *([_what_hangs(cluster)] if timed_out else [])]
            raise TopologyFailed(f"not everything was processed: {'; '.join(said)}", failures)
        return cluster.emitted


def _fixed_spouts(topology: Topology, sources: Mapping[str, Iterable[Any]]) -> dict[str, ComponentSpec]:
    tuples: dict[str, dict[str, list[Any]]] = {}
    for key, values in sources.items():
        component, _, stream = key.partition("/")
        if component not in topology.components or not topology[component].is_spout:
            known = ", ".join(repr(spout.id) for spout in topology.spouts)
            raise UsageError(f"source {key!r}: {component!r} is no spout of this topology; its spouts are {known}")
        tuples.setdefault(component, {})[stream or DEFAULT_STREAM] = list(values)
    fixed = {}
    for component, streams in tuples.items():
        spec = topology[component]
        spout = in_place_of(spec.component, FixedSpout(plain_outputs(spec.outputs), streams))
        fixed[component] = replace(spec, component=spout, executors=1, tasks=1)
    return fixed


def _described(failures: list[tuple[str, Any, Failure]]) -> list[str]:
    lines = [f"message {message_id!r} of {spout!r}: {failure}" for spout, message_id, failure in failures[:_SHOWN]]
    return [*lines, f"and {len(failures) - _SHOWN} more"] if len(failures) > _SHOWN else lines


def _what_hangs(cluster: SimulatedCluster) -> str:
    """Name the places of tuples that were never acked or failed, as far as the counters show."""
    held = {
        name: component.executed - component.acked - component.failed
        for name, component in cluster.report().components.items()
        if component.kind == "bolt"
    }
    holders = [f"{name!r} has {count} tuples" for name, count in held.items() if count > 0]
    if holders:
        return f"neither acked nor failed: {', '.join(holders)}"
    spouts = [task for core in cluster.cores for task in core.spout_tasks.values()]
    idle = sorted({task.component for task in spouts if not task.finished})
    return f"spouts not exhausted: {', '.join(map(repr, idle))}" if idle else "no bolt holds a tuple"
