"""complete_topology: runs a whole topology in this process, and returns the tuples that each component emitted.

Guarantees: only the spouts named in `sources` are changed; the same seed and input give the same run; time is
simulated, so nothing waits. It either returns with every message acked or raises.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import TIMEOUT, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.topology import ComponentSpec, Topology, check_topology
from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.foreign.identity import key_of
from squall.testing.fixed_spout import FixedSpout
from squall.testing.sharing import copy_sharing
from squall.testing.simulated import SimulatedCluster

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
    specs = {id_: replace(spec, **_replacement(spouts.get(id_))) for id_, spec in topology.components.items()}
    fixed = replace(topology, components=specs)
    ledger = _Ledger()
    with (
        tempfile.TemporaryDirectory(prefix="squall-complete-") as state,
        SimulatedCluster(fixed, config, name="complete", state_root=state, copy=ledger.copy) as cluster,
    ):
        try:
            cluster.run_until(
                lambda: cluster.drained or any(spout in spouts for spout, _, _ in ledger.failures()), timeout_secs,
                "it was drained",
            )
        except ClusterError as error:
            raise ClusterError(f"{error}; {_what_hangs(cluster)}{_first_of(ledger.failures())}") from None
        if failures := ledger.failures():
            raise TopologyFailed(f"not everything was processed: {_described(failures, cluster)}", failures)
        return cluster.emitted


def _replacement(spout: FixedSpout | None) -> dict[str, Any]:
    return {} if spout is None else {"component": spout, "executors": 1, "tasks": 1}


def _fixed_spouts(topology: Topology, sources: Mapping[str, Iterable[Any]]) -> dict[str, FixedSpout]:
    tuples: dict[str, dict[str, list[Any]]] = {}
    for key, values in sources.items():
        component, _, stream = key.partition("/")
        spec, stream = topology.components.get(component), stream or DEFAULT_STREAM
        if spec is None or not spec.is_spout:
            what = "is a bolt" if spec is not None else "is no component"
            known = ", ".join(repr(spout.id) for spout in topology.spouts)
            raise UsageError(f"source {key!r}: {component!r} {what} of this topology; its spouts are {known}")
        tuples.setdefault(component, {})[stream] = _checked(key, spec, stream, values)
    return {component: FixedSpout(topology[component].outputs, streams) for component, streams in tuples.items()}


def _checked(key: str, spec: ComponentSpec, stream: str, values: Iterable[Any]) -> list[Any]:
    shape = spec.outputs.get(stream)
    if shape is None:
        declared = ", ".join(map(repr, spec.outputs)) or "none"
        raise UsageError(f"source {key!r}: {spec.id!r} declares no stream {stream!r}; its streams: {declared}")
    if shape.direct:
        raise UsageError(f"source {key!r}: stream {stream!r} is direct, and fixed tuples name no task")
    tuples = list(values)
    for position, row in enumerate(tuples):
        if not isinstance(row, tuple | list) or len(row) != len(shape.fields):
            raise UsageError(
                f"source {key!r}: tuple {position} is {row!r:.80}; it needs a value for each of "
                f"({', '.join(shape.fields)})"
            )
    return tuples


class _Ledger:
    """The messages that have failed and not been acked since."""

    def __init__(self) -> None:
        self._of_tasks: list[_Watched] = []

    def copy(self, spec: ComponentSpec) -> Any:
        """Copy a user object for one task; spouts get a watcher."""
        user = copy_sharing(spec)
        if not spec.is_spout:
            return user
        watched = _Watched(user, spec.id)
        self._of_tasks.append(watched)
        return watched

    def failures(self) -> list[tuple[str, Any, Failure]]:
        return [
            (watched._name, message_id, failure)
            for watched in self._of_tasks
            for message_id, failure in watched._failed.values()
        ]


class _Watched:
    """Wraps the spout of one task, and notes its acks and failures before they reach it."""

    def __init__(self, spout: Any, name: str) -> None:
        self._spout = spout
        self._name = name
        self._failed: dict[Any, tuple[Any, Failure]] = {}
        """Message ids, which are the task's own, and failures, by keys: an id may be any object."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spout, name)

    def _note(self, message_id: Any, failure: Failure) -> None:
        self._failed[key_of(message_id)] = message_id, failure

    def ack(self, message_id: Any) -> None:
        self._failed.pop(key_of(message_id), None)
        self._spout.ack(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._note(message_id, failure)
        self._spout.on_failure(message_id, failure)

    def ack_batch(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            self._failed.pop(key_of(message_id), None)
        self._spout.ack_batch(message_ids)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        for message_id, failure in zip(message_ids, failures, strict=True):
            self._note(message_id, failure)
        self._spout.fail_batch(message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._note(message_id, failure)
        self._spout.on_dead_letter(message_id, failure)


def _described(failures: list[tuple[str, Any, Failure]], cluster: SimulatedCluster) -> str:
    lines = [f"message {message_id!r} of {spout!r}: {failure}" for spout, message_id, failure in failures[:_SHOWN]]
    if len(failures) > _SHOWN:
        lines.append(f"and {len(failures) - _SHOWN} more")
    if any(failure.reason == TIMEOUT for _, _, failure in failures):
        lines.append(_what_hangs(cluster))
    return "; ".join(lines)


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
    spouts = [task for core in cluster.cores for _, task in core.spout_tasks.values()]
    idle = sorted({task.component for task in spouts if not task.finished})
    return f"spouts not exhausted: {', '.join(map(repr, idle))}" if idle else "no bolt holds a tuple"


def _first_of(failures: list[tuple[str, Any, Failure]]) -> str:
    if not failures:
        return ""
    spout, message_id, failure = failures[0]
    return f"; message {message_id!r} of {spout!r} failed last with {failure}"
