"""Weaves identities into a topology that has bolts with state: its author declares none of it.

::

    lines ──(text, __id)──► split ──(word, __id)──► count          count: a bolt with state
      around: stores what is settled   around: numbers its emits         absorbs each identity once

Streams that lead to state get a field more, and the components at their ends something that stands around them
(`engine.state.identified`); all others stay as they are, and pay nothing.

Guarantees: what is returned is an ordinary topology. What would count twice is refused: a grouping before state that
may choose another task the next time, a cycle, and the same stream twice.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

from squall.engine.api.stream import Stream
from squall.engine.api.topology import (
    ALL,
    CUSTOM,
    LOCAL_OR_SHUFFLE,
    NONE,
    PARTIAL_KEY,
    SHUFFLE,
    ComponentSpec,
    Subscription,
)
from squall.engine.foreign.around import WithoutLast
from squall.engine.state.identified import IdentifiedBolt, IdentifiedSpout
from squall.engine.state.lineage import FIELD, HOP_BITS, Lineage, Slots, hash64
from squall.engine.state.stateful import StatefulBatchBolt, StatefulBolt, mistake_of
from squall.engine.state.stateful_task import StatefulTask

Specs = Mapping[str, ComponentSpec]
_ANY_TASK = frozenset({SHUFFLE, LOCAL_OR_SHUFFLE, PARTIAL_KEY, NONE})
"""Groupings that may give a tuple to another task when it comes again."""


class _Weaver:
    def __init__(self, specs: Specs) -> None:
        self.specs = specs
        self.stateful = [
            name for name, spec in specs.items() if isinstance(spec.component, StatefulBolt | StatefulBatchBolt)
        ]
        self.carried: dict[str, set[str]] = {}
        """Component -> its streams that lead to state."""
        todo = list(self.stateful)
        for name in todo:
            for one in specs[name].subscriptions:
                if one.source not in todo:
                    todo.append(one.source)
                self.carried.setdefault(one.source, set()).add(one.stream)
        self._hops: dict[str, int] = {}
        spouts = sorted(name for name in self.carried if specs[name].is_spout)
        tasks = [specs[name].tasks for name in spouts]
        self.slots = {
            name: Slots(before, sum(tasks)) for name, before in zip(spouts, accumulate(tasks, initial=0), strict=False)
        }

    def is_carried(self, one: Subscription) -> bool:
        return one.stream in self.carried.get(one.source, ())

    def hops(self, name: str, way: tuple[str, ...] = ()) -> int:
        """Most digits in the path of what a component emits. RecursionError in a cycle."""
        if name in way:
            raise RecursionError(" -> ".join((*way[way.index(name) :], name)))
        if name not in self._hops:
            spec = self.specs[name]
            before = [self.hops(one.source, (*way, name)) for one in spec.subscriptions if self.is_carried(one)]
            self._hops[name] = 0 if spec.is_spout else 1 + max(before, default=0)
        return self._hops[name]

    def spouts_of(self, name: str, seen: set[str]) -> set[str]:
        """The spouts whose messages may reach a component."""
        spec = self.specs[name]
        if spec.is_spout:
            return {name}
        found: set[str] = set()
        for one in spec.subscriptions:
            if one.source not in seen:
                seen.add(one.source)
                found |= self.spouts_of(one.source, seen)
        return found

    def mistakes(self) -> list[str]:
        found = []
        for name in self.stateful:
            spec = self.specs[name]
            if (mistake := mistake_of(spec.component)) is not None:
                found.append(f"bolt {name!r} {mistake}")
            found += [
                f"bolt {name!r} has state and reads {one.source!r} by {one.grouping} grouping, which may give a tuple "
                "to another task when it comes again; allowed: fields_grouping, another that always chooses the same "
                "tasks, or a bolt of one task"
                for one in spec.subscriptions if one.grouping in _ANY_TASK and spec.tasks > 1
            ]
        for name, spec in self.specs.items():
            ways = [(one.source, one.stream) for one in spec.subscriptions if self.is_carried(one)]
            found += [
                f"bolt {name!r} reads stream {stream!r} of {source!r} twice, which leads to state that counts each "
                "tuple once; allowed: once" for source, stream in sorted({way for way in ways if ways.count(way) > 1})
            ]
        try:
            for name in self.carried:
                self.hops(name)
        except RecursionError as cycle:
            found.append(f"{cycle} is a cycle before state that counts each tuple once; allowed: a way without one")
        return found

    def woven(self) -> dict[str, ComponentSpec]:
        most = max(self.hops(name) for name in self.carried)
        return {name: self._spec(spec, HOP_BITS * most) for name, spec in self.specs.items()}

    def _spec(self, spec: ComponentSpec, path_bits: int) -> ComponentSpec:
        streams = self.carried.get(spec.id, set())
        reads = [one for one in spec.subscriptions if self.is_carried(one)]
        if not streams and not reads:
            return spec
        outputs = {
            name: Stream(*shape.fields, FIELD, direct=shape.direct) if name in streams else shape
            for name, shape in spec.outputs.items()
        }
        copies = any(one.grouping in (ALL, CUSTOM) for one in reads)
        sources = sorted({one.source for one in reads})
        lineage = Lineage(
            spec.id, path_bits, {name: spec.outputs[name].fields for name in streams},
            {source: number for number, source in enumerate(sources)}, spec.tasks if copies else 1,
            any(not self.specs[source].is_spout for source in sources),
        )
        hiding: Any = WithoutLast
        subscriptions = tuple(
            one if one.custom is None or not self.is_carried(one) else replace(one, custom=hiding(one.custom))
            for one in spec.subscriptions
        )
        return replace(
            spec, component=self._around(spec, lineage), outputs=outputs,  # type: ignore[arg-type]
            subscriptions=subscriptions,
        )

    def _around(self, spec: ComponentSpec, lineage: Lineage) -> object:
        if spec.is_spout:
            return IdentifiedSpout(spec.component, lineage, self.slots[spec.id])
        if not isinstance(spec.component, StatefulBolt | StatefulBatchBolt):
            return IdentifiedBolt(spec.component, lineage)
        read = {one.stream for each in self.specs.values() for one in each.subscriptions if one.source == spec.id}
        spouts = {name: self.slots[name] for name in sorted(self.spouts_of(spec.id, set()))}
        return StatefulTask(spec.component, lineage, spec.outputs, frozenset(read), spouts, self._shape(spec))

    def _shape(self, spec: ComponentSpec) -> int:
        """A number that differs where the same messages have other identities."""
        before = [(each.id, each.tasks, [
            (one.source, one.stream, one.grouping, one.fields) for one in each.subscriptions
        ]) for each in self.specs.values() if each.id in self.carried]
        return hash64((spec.id, sorted(before))) >> 1


def woven(specs: Specs, mistakes: list[str]) -> dict[str, ComponentSpec]:
    """The components with what carries identities, where there is state; mistakes are added to the list."""
    weaver = _Weaver(specs)
    if not weaver.stateful:
        return dict(specs)
    found = weaver.mistakes()
    mistakes += found
    return dict(specs) if found else weaver.woven()
