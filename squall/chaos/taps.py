"""Taps: wrap a topology's spouts and bolts, and record all messages that pass.

Guarantees
    * The user's components see the same as without taps: values, fields, anchors, answers.
    * An emit is in the source log before the engine has it; what a sink receives is in the sink ledger before the sink
      has it, and so before it can be acked; an answer is in the source log before the spout has it.
    * Each tuple carries the keys of its messages in its values, in the taps' own field, from the spout to the sinks.
      The taps use no root, edge or count of the engine.

Relies on: emits that are anchored (by a basic or a batch bolt, or by `anchors=`). A tuple without an anchor stems from
no message.

Not hidden: in a component's own task hooks, and in dead letters, values end with the taps' field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from squall.chaos.tapped_batches import TappedBatchBolt, TappedBatchSpout
from squall.chaos.tapped_bolts import TappedAsyncBolt, TappedBasicBolt, TappedBolt, label_of
from squall.chaos.tapped_spout import TappedSpout
from squall.chaos.tapping import STEMS_FROM, Tapping
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, CustomGrouping, Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import Stream
from squall.engine.api.topology import LOCAL_OR_SHUFFLE, NONE, PARTIAL_KEY, SHUFFLE, ComponentSpec, Topology
from squall.engine.errors import UsageError

_ANY_TASK = frozenset({SHUFFLE, LOCAL_OR_SHUFFLE, PARTIAL_KEY, NONE})
"""Groupings that may give a tuple to another task each time."""


def tap(topology: Topology, tapping: Tapping) -> Topology:
    """Copy a topology, with taps. UsageError for a sink that it does not have."""
    for sink in tapping.sinks:
        if sink not in topology.components or topology[sink].is_spout:
            bolts = ", ".join(spec.id for spec in topology.components.values() if not spec.is_spout)
            raise UsageError(f"sink {sink!r} is no bolt of this topology; its bolts: {bolts or 'none'}")
    return replace(topology, components={name: _tapped(spec, tapping) for name, spec in topology.components.items()})


def sinks_of(topology: Topology) -> tuple[str, ...]:
    """The bolts whose streams no bolt reads."""
    read = {subscription.source for spec in topology.components.values() for subscription in spec.subscriptions}
    return tuple(name for name, spec in topology.components.items() if not spec.is_spout and name not in read)


def _tapped(spec: ComponentSpec, tapping: Tapping) -> ComponentSpec:
    outputs = {name: Stream(*shape.fields, STEMS_FROM, direct=shape.direct) for name, shape in spec.outputs.items()}
    subscriptions = tuple(
        one if one.custom is None else replace(one, custom=_TappedGrouping(one.custom)) for one in spec.subscriptions
    )
    return replace(spec, component=_wrapped(spec, tapping), outputs=outputs, subscriptions=subscriptions)


def _wrapped(spec: ComponentSpec, tapping: Tapping) -> Spout | Bolt | BasicBolt | BatchBolt:
    match spec.component:
        case BatchSpout() as spout:
            return TappedBatchSpout(spout, spec.id, tapping)
        case Spout() as spout:
            return TappedSpout(spout, spec.id, tapping)
        case BatchBolt() as bolt:
            return TappedBatchBolt(bolt, spec.id, tapping, _placed(spec))
        case BasicBolt() as bolt:
            return TappedBasicBolt(bolt, spec.id, tapping, _placed(spec))
        case AsyncBolt() as bolt:
            return TappedAsyncBolt(bolt, spec.id, tapping, _placed(spec))
        case bolt:
            return TappedBolt(bolt, spec.id, tapping, _placed(spec))


def _placed(spec: ComponentSpec) -> list[str]:
    """The ways into a bolt of several tasks whose grouping decides which of them receives a tuple."""
    if spec.tasks == 1:
        return []
    return [label_of(spec.id, one.source, one.stream) for one in spec.subscriptions if one.grouping not in _ANY_TASK]


class _TappedGrouping(CustomGrouping):
    """Wraps a user's grouping, and hides the taps' field from it."""

    def __init__(self, inner: CustomGrouping) -> None:
        self._inner = inner

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self._inner.prepare(context, source, stream, target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return self._inner.choose_tasks(source_task, values[:-1])
