"""Weaves identities into a topology that has bolts with state: its author declares none of it.

::

    lines ──(text, __id)──► split ──(word, __id)──► count          count: a bolt with state
      around: stores what is settled   around: numbers its emits         absorbs each identity once

Streams that lead to state get a field more, and the components at their ends something that stands around them
(`engine.state.records.identified`); all others stay as they are, and pay nothing.

Guarantees: what is returned is an ordinary topology. What would count twice is refused: a grouping before state that
may choose another task the next time, a cycle, and the same stream twice.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from squall.engine.api.around import hiding_last
from squall.engine.api.component import Spout
from squall.engine.api.stream import Stream
from squall.engine.api.topology import ALL, ANY_TASK, CUSTOM, FIELDS, ComponentSpec, Subscription
from squall.engine.foreign.text import repr_of
from squall.engine.state.commits import TaskPlace
from squall.engine.state.input_rows import Read
from squall.engine.state.keyed import StatefulBatchBolt, StatefulBolt, mistake_of
from squall.engine.state.records.identified import IdentifiedBolt, IdentifiedSpout
from squall.engine.state.records.lineage import FIELD, HOP_BITS, RESULTS, Lineage, PartitionNumbers, hash64
from squall.engine.state.sink_task import GatheringTask, SinkTask
from squall.engine.state.sinks import ExactSink
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.windowing.results import ResultsSpout
from squall.engine.state.windowing.window_task import TICK_SECS, WindowTask
from squall.engine.state.windowing.windows import WindowedBolt, windowing_mistake

Specs = Mapping[str, ComponentSpec]
GROUP_COMMIT = {"batch_rows": 2048, "batch_wait_ms": 5}
"""A commit takes half a millisecond, and is for all tuples that come within this time."""


def _plain(component: str) -> str:
    """The name that users give to where results come from."""
    return component.removesuffix(RESULTS)


class _Weaver:
    def __init__(self, specs: Specs) -> None:
        self.specs = specs
        self.stateful = [
            name for name, spec in specs.items()
            if isinstance(spec.component, StatefulBolt | StatefulBatchBolt | WindowedBolt | ExactSink)
        ]
        self.carried: dict[str, set[str]] = {
            name: set(spec.outputs) for name, spec in specs.items() if isinstance(spec.component, ResultsSpout)
        }
        """Component -> its streams that lead to state, or come from windows."""
        todo = list(self.stateful)
        for name in todo:
            for one in specs[name].subscriptions:
                if one.source not in todo:
                    todo.append(one.source)
                self.carried.setdefault(one.source, set()).add(one.stream)
        reads = [{one.source for one in spec.subscriptions if self.is_carried(one)} for spec in specs.values()]
        meets = any(len(sources) > 1 for sources in reads)
        bolts = sorted(name for name in self.carried if not specs[name].is_spout)
        self.kinds = {name: number for number, name in enumerate(bolts)} if meets else {}
        """Bolts whose tuples must differ from those of others, because some bolt reads several components -> number."""
        spouts = sorted(name for name in self.carried if specs[name].is_spout)
        self.numbers = {name: PartitionNumbers(number, len(spouts)) for number, name in enumerate(spouts)}

    def is_carried(self, one: Subscription) -> bool:
        return one.stream in self.carried.get(one.source, ())

    def most_hops(self) -> int:
        """Most digits in the path of a tuple. CycleError in a cycle."""
        before = {
            name: {one.source for one in self.specs[name].subscriptions if self.is_carried(one)}
            for name in self.carried
        }
        hops: dict[str, int] = {}
        for name in TopologicalSorter(before).static_order():
            hops[name] = (not self.specs[name].is_spout) + max(map(hops.__getitem__, before[name]), default=0)
        return max(hops.values())

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
            if spec.component.blocking:
                found.append(f"bolt {name!r} has state and blocking = True; allowed: False")
            if (durability := getattr(spec.component, "durability", "")) not in ("process", "full"):
                found.append(f'bolt {name!r} has durability {durability!r:.80}; expected "process" or "full"')
            if isinstance(spec.component, WindowedBolt):
                found += self._window_mistakes(spec, spec.component)
            elif isinstance(spec.component, ExactSink):
                if type(spec.component).commit is ExactSink.commit:
                    found.append(f"bolt {name!r} defines no commit")
                found += [
                    f"bolt {name!r} has {limit} {repr_of(value)}; allowed: a number from {least} up"
                    for limit, least in (("commit_secs", 0), ("commit_rows", 1), ("commit_bytes", 1))
                    if not (isinstance(value := getattr(spec.component, limit), int | float) and value >= least)
                ]
            elif (mistake := mistake_of(spec.component)) is not None:
                found.append(f"bolt {name!r} {mistake}")
            found += [
                f"bolt {name!r} has state and reads {one.source!r} by {one.grouping} grouping, which may give a tuple "
                "to another task when it comes again; allowed: fields_grouping, another that always chooses the same "
                "tasks, or a bolt of one task"
                for one in spec.subscriptions if one.grouping in ANY_TASK and spec.tasks > 1
            ]
        for name, spec in self.specs.items():
            ways = [(one.source, one.stream) for one in spec.subscriptions if self.is_carried(one)]
            found += [
                f"bolt {name!r} reads stream {stream!r} of {source!r} twice, which leads to state that counts each "
                "tuple once; allowed: once" for source, stream in sorted({way for way in ways if ways.count(way) > 1})
            ]
        found += [
            f"spout {name!r} cannot name its records, which state that counts each record once needs; "
            f"{spec.component.identity_remedy}"
            for name, spec in self.specs.items()
            if name in self.carried and isinstance(spec.component, Spout) and spec.component.record_identity is None
        ]
        found += [
            f"component {name!r} declares a field {FIELD!r}, which is the system's" for name, spec in self.specs.items()
            if any(FIELD in shape.fields for shape in spec.outputs.values())
        ]
        try:
            self.most_hops()
        except CycleError as error:
            cycle = " -> ".join(error.args[1])
            found.append(f"{cycle} is a cycle before state that counts each tuple once; allowed: a way without one")
        return found

    def _window_mistakes(self, spec: ComponentSpec, bolt: WindowedBolt) -> list[str]:
        fields = [self.specs[one.source].outputs[one.stream].fields for one in spec.subscriptions]
        inputs = {_plain(one.source): its for one, its in zip(spec.subscriptions, fields, strict=True)}
        mistake = windowing_mistake(bolt, fields) or bolt.input_mistake(inputs)
        late = bolt.windowing and bolt.windowing.late_stream
        if mistake is None and late and (shape := self.specs[spec.id + RESULTS].outputs[late]).fields != fields[0]:
            mistake = (
                f"declares stream {late!r} for late tuples with ({', '.join(shape.fields)}); allowed: the fields of "
                f"its input, ({', '.join(fields[0])}), or not to declare it"
            )
        if mistake is None and bolt.windowing is not None and bolt.windowing.key and spec.tasks > 1:
            key = bolt.windowing.key
            mistake = next((
                f"has windows by {', '.join(key)} and reads {one.source!r} by {one.grouping} grouping of "
                f"{', '.join(one.fields) or 'no field'}; allowed: fields_grouping of these"
                for one in spec.subscriptions if one.grouping == FIELDS and not set(one.fields) <= set(key)
            ), None)
        return [] if mistake is None else [f"bolt {spec.id!r} {mistake}"]

    def woven(self) -> dict[str, ComponentSpec]:
        path_bits = HOP_BITS * self.most_hops()
        return {name: self._spec(spec, path_bits) for name, spec in self.specs.items()}

    def _spec(self, spec: ComponentSpec, path_bits: int) -> ComponentSpec:
        streams = self.carried.get(spec.id, set())
        reads = [one for one in spec.subscriptions if self.is_carried(one)]
        if not streams and not reads:
            return spec
        outputs = {
            name: Stream(*shape.fields, FIELD, direct=shape.direct) if name in streams else shape
            for name, shape in spec.outputs.items()
        }
        copied = frozenset((_plain(one.source), one.stream) for one in reads if one.grouping in (ALL, CUSTOM))
        lineage = Lineage(
            spec.id, path_bits, {name: spec.outputs[name] for name in streams},
            self.kinds.get(spec.id, 0), max(1, len(self.kinds)), copied, self._copies(spec),
            any(not self.specs[one.source].is_spout for one in reads),
        )
        subscriptions = tuple(hiding_last(one) if self.is_carried(one) else one for one in spec.subscriptions)
        component: Any = self._around(spec, lineage)
        config = spec.config
        if isinstance(component, GatheringTask):
            config = {**config, **component.config}
        elif spec.id in self.stateful:
            config = {**GROUP_COMMIT, **config}
        return replace(spec, component=component, outputs=outputs, subscriptions=subscriptions, config=config)

    def _copies(self, spec: ComponentSpec) -> int:
        """How many tasks of a component may get a copy of the same tuple."""
        reads = [one.grouping for one in spec.subscriptions if self.is_carried(one)]
        return spec.tasks if ALL in reads or CUSTOM in reads else 1

    def _around(self, spec: ComponentSpec, lineage: Lineage) -> object:
        if spec.is_spout:
            is_full = any(
                getattr(self.specs[name].component, "durability", "") == "full" for name in self.stateful
                if spec.id in self.spouts_of(name, set())
            )
            return IdentifiedSpout(spec.component, lineage, self.numbers[spec.id], is_full)
        if spec.id not in self.stateful:
            return IdentifiedBolt(spec.component, lineage)
        spouts = {name: self.numbers[name] for name in sorted(self.spouts_of(spec.id, set()))}
        reads = sorted(
            Read(_plain(one.source), one.stream, self.specs[one.source].outputs[one.stream].fields, one.grouping,
                 one.fields) for one in spec.subscriptions
        )
        read = {one.stream for each in self.specs.values() for one in each.subscriptions if one.source == spec.id}
        streams, read_streams = spec.outputs, frozenset(read)
        if isinstance(spec.component, WindowedBolt):
            streams = self.specs[spec.id + RESULTS].outputs
            read_streams = frozenset(streams)
        place = TaskPlace(lineage, streams, read_streams, spouts, self._shape(spec, lineage), reads)
        if isinstance(spec.component, ExactSink):
            task = SinkTask(spec.component, place)
            return GatheringTask(task) if spec.component.commit_secs else task
        if isinstance(spec.component, WindowedBolt):
            return WindowTask(spec.component, place)
        return StatefulTask(spec.component, place)

    def _shape(self, spec: ComponentSpec, lineage: Lineage) -> int:
        """A number that differs where the same messages have other identities."""
        before = [(each.id, self._copies(each), [
            (one.source, one.stream, one.grouping, one.fields) for one in each.subscriptions
        ]) for each in self.specs.values() if each.id in self.carried or each.id == spec.id]
        numbering = lineage.path_bits, sorted(self.kinds.items()), sorted(self.numbers.items())
        return hash64((spec.id, numbering, sorted(before))) >> 1


def _with_results(specs: Specs) -> dict[str, ComponentSpec]:
    """The components with a spout for the results of each bolt with windows, which others read in its place."""
    windowed = {name: spec for name, spec in specs.items() if isinstance(spec.component, WindowedBolt)}
    found = {}
    for name, spec in specs.items():
        read = tuple(
            replace(one, source=one.source + RESULTS) if one.source in windowed else one for one in spec.subscriptions
        )
        found[name] = spec = replace(spec, subscriptions=read)
        bolt = spec.component
        if isinstance(bolt, WindowedBolt):
            ticks = {**spec.config, "tick_tuple_freq_secs": TICK_SECS}
            found[name] = replace(spec, outputs={}, config=ticks)
            found[name + RESULTS] = ComponentSpec(
                name + RESULTS, ResultsSpout(), spec.executors, spec.tasks, spec.outputs
            )
    return found


def woven(specs: Specs, mistakes: list[str]) -> dict[str, ComponentSpec]:
    """The components with what carries identities, where there is state; mistakes are added to the list."""
    weaver = _Weaver(_with_results(specs))
    if not weaver.stateful:
        return dict(specs)
    found = weaver.mistakes()
    mistakes += found
    return dict(specs) if found else weaver.woven()
