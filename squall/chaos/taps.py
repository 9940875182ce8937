"""The tap: stands around each spout, bolt and grouping of a topology, and records all messages that pass.

Guarantees
    * The user's components see the same as without taps: values, fields, anchors, answers.
    * An emit is in the source log before the engine has it; what a sink receives is in the sink ledger before the sink
      has it, and so before it can be acked; an answer is in the source log before the spout has it. All records of a
      batch are one write.
    * Each tuple carries the keys of its messages in its values, in the taps' own field, from the spout to the sinks.
      The taps use no root, edge or count of the engine.

Relies on: emits that are anchored (by a basic or a batch bolt, or by `anchors=`). A tuple without an anchor stems from
no message. Task hooks would not do: they are called after the event, and can add no field.

Not hidden: in a component's own task hooks, and in dead letters, values end with the taps' field.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from squall.chaos.tapped_bolt import Tapped, TappedBolt, label_of
from squall.chaos.tapping import NO_ID, STEMS_FROM, Keys, Tapping, digest, is_let_go, new_log, quoted, with_keys
from squall.engine.api.around import HidingOut, hiding_last
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import FAILED, Failure
from squall.engine.api.stream import Stream
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.errors import UsageError
from squall.engine.foreign.given_columns import ids_of
from squall.engine.foreign.text import repr_of
from squall.engine.state.stateful_task import StatefulTask

_NAME_CHARACTERS = 80
_BURST_SECS = 0.1
_LOOK_SECS = 0.05
"""Between a spout's checks whether it was let go."""


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


def from_state(topology: Topology) -> set[str]:
    """The ways into bolts whose values depend on an order of arrival, which a replay changes: from bolts with state,
    and from those behind them."""
    specs = topology.components.values()
    found = {spec.id for spec in specs if type(spec.component) is StatefulTask}
    while more := {spec.id for spec in specs if any(one.source in found for one in spec.subscriptions)} - found:
        found |= more
    return {label_of(spec.id, one.source, one.stream) for spec in specs for one in spec.subscriptions
            if one.source in found}


def _tapped(spec: ComponentSpec, tapping: Tapping) -> ComponentSpec:
    outputs = {name: Stream(*shape.fields, STEMS_FROM, direct=shape.direct) for name, shape in spec.outputs.items()}
    made: type[Tapped] = TappedSpout if spec.is_spout else TappedBolt
    component: Any = made(spec.component, spec.id, tapping)
    subscriptions = tuple(map(hiding_last, spec.subscriptions))
    return replace(spec, component=component, outputs=outputs, subscriptions=subscriptions)


class TappedSpout(Tapped):
    """Writes the source log, and keeps a spout to its pace."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self._log = new_log(self._tapping, "source")
        self._index = context.task_index
        self._out = _SpoutOut(collector, self)
        self._rate = self._tapping.rates.get(self._component)
        self._began = self._look_secs = time.monotonic()
        self._emitted = 0
        self._in_burst = False
        self._failed: set[str] = set()
        self._let_go = False
        self._inner.open(conf, context, self._out)

    def close(self) -> None:
        self._inner.close()
        self._log.close()

    # ---- its pace ----

    def next_tuple(self) -> Any:
        return self._inner.next_tuple() if self._rate is None or self._allowed(self._rate) > 0 else None

    def next_batch(self, rows: int) -> Any:
        if self._rate is not None:
            rows = int(min(rows, self._allowed(self._rate)))
        return self._inner.next_batch(rows) if rows > 0 else None

    def _allowed(self, rate: float) -> float:
        """How many emits its pace allows now."""
        now = time.monotonic()
        left = (now - self._began) * rate - self._emitted
        # In bursts: one by one, no batch would have two rows.
        self._in_burst = left >= (1 if self._in_burst else max(1, rate * _BURST_SECS))
        return left if self._in_burst else float("inf") if self._is_let_go(now) else 0

    def _is_let_go(self, now: float) -> bool:
        if not self._let_go and now >= self._look_secs:
            self._look_secs = now + _LOOK_SECS
            self._let_go = is_let_go(self._tapping)
        return self._let_go

    # ---- its emits ----

    def note(self, message_ids: Sequence[Any]) -> list[Keys]:
        """Record messages that are about to be emitted. Returns their keys."""
        self._emitted += len(message_ids)
        now_ns = time.monotonic_ns()
        keys: list[Keys] = []
        lines = []
        for message_id in message_ids:
            if message_id is None:
                keys.append(NO_ID)
                lines.append(f'["untracked",{quoted(self._component)},{now_ns}')
            else:
                key = self._key(message_id)
                name = quoted(f"{self._component}[{self._index}] message {repr_of(message_id, _NAME_CHARACTERS)}")
                keys.append(key)
                lines.append(f'["emit","{key}",{now_ns},{name}')
        self._log.write(*lines)
        return keys

    def _key(self, message_id: Any) -> str:
        owner = (self._component, self._index) if self._tapping.by_task else (self._component,)
        return digest((*owner, message_id))

    # ---- its answers ----

    def ack(self, message_id: Any) -> None:
        if self._acked(message_id):
            self._inner.ack(message_id)
        else:
            self._inner.on_failure(message_id, self._on_purpose())

    def ack_batch(self, message_ids: list[Any]) -> None:
        acked: list[Any] = []
        again: list[Any] = []
        for message_id in message_ids:
            (acked if self._acked(message_id) else again).append(message_id)
        if acked:
            self._inner.ack_batch(acked)
        if again:
            self._inner.fail_batch(again, [self._on_purpose() for _ in again])

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._note_failure("fail", message_id, failure)
        self._inner.on_failure(message_id, failure)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        for message_id, failure in zip(message_ids, failures, strict=True):
            self._note_failure("fail", message_id, failure)
        self._inner.fail_batch(message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._note_failure("dead", message_id, failure)
        self._inner.on_dead_letter(message_id, failure)

    def _note_failure(self, event: str, message_id: Any, failure: Failure) -> None:
        self._log.append(event, self._key(message_id), time.monotonic_ns(), failure.reason)

    def _acked(self, message_id: Any) -> bool:
        """Record an ack. False: the spout is to be told that the message has failed, though it was processed."""
        key, every = self._key(message_id), self._tapping.fail_every
        if not every or int(key, 16) % every or key in self._failed or self._is_let_go(time.monotonic()):
            self._log.write(f'["ack","{key}",{time.monotonic_ns()}')
            return True
        self._failed.add(key)
        self._log.append("fail", key, time.monotonic_ns(), "once more, on purpose")
        return False

    def _on_purpose(self) -> Failure:
        return Failure(FAILED, self._component, 0)


class _SpoutOut(HidingOut):
    """Has an emit written down before it is one."""

    def __init__(self, collector: Any, spout: TappedSpout) -> None:
        super().__init__(collector)
        self._note = spout.note

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        (keys,) = self._note([named.get("message_id")])
        return with_keys(values, keys)

    def _columns(self, columns: Any, task: int | None, named: dict[str, Any]) -> Any:
        rows = min(map(len, columns), default=0)
        if isinstance(named.get("message_ids"), Iterable):
            named["message_ids"] = ids_of(named["message_ids"])  # an iterator, such as map(...), is read once
        ids: Any = named.get("message_ids")
        # An id for each row, or the engine refuses them.
        fits = isinstance(ids, Sequence) and len(ids) == rows
        return *columns, self._note(ids if fits else [None] * rows)
