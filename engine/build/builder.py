"""TopologyBuilder: declares components and their inputs, and checks the whole graph in `build()`.

Guarantees: `build()` either returns a topology that can run or raises one `TopologyError` that lists every mistake
found. Cycles are legal, as in Storm.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, Component, CustomGrouping, Spout
from squall.engine.api.config import COMPONENT_SETTINGS, Config, canonical_name, check_settings
from squall.engine.api.stream import DEFAULT_STREAM, SYSTEM_PREFIX, Stream, parse_outputs
from squall.engine.api.topology import (
    ALL,
    CUSTOM,
    DIRECT,
    FIELDS,
    GLOBAL,
    LOCAL_OR_SHUFFLE,
    NONE,
    PARTIAL_KEY,
    SHUFFLE,
    ComponentSpec,
    Subscription,
    Topology,
)
from squall.engine.build.weave import woven
from squall.engine.errors import TopologyError
from squall.engine.foreign.methods import GENERATOR, deferred_kind
from squall.engine.foreign.text import message_of, name_mistake, repr_of
from squall.engine.state.records.lineage import RESULTS
from squall.engine.state.sinks import ExactSink
from squall.engine.state.windowing.windows import WindowedBolt


class Declarer:
    """Declares one spout's settings; returned by `set_spout`."""

    def __init__(self, id_: Any, component: Any, parallelism: Any, tasks: Any) -> None:
        self._id = id_
        self._component = component
        self._parallelism = parallelism
        self._tasks = tasks
        self._config: dict[str, Any] = {}
        self._subscriptions: list[Subscription] = []

    def set_config(self, **settings: Any) -> Any:
        """Override settings for this component, such as `tick_tuple_freq_secs` or `max_spout_pending`. Returns the
        declarer."""
        self._config.update(settings)
        return self


class BoltDeclarer(Declarer):
    """Declares one bolt's inputs; returned by `set_bolt`. Each call subscribes the bolt to a stream of a component, by
    default to its default stream, and returns the declarer."""

    def _add(self, source: str, stream: str, grouping: str, fields: tuple[str, ...] = (),
             custom: CustomGrouping | None = None) -> BoltDeclarer:
        self._subscriptions.append(Subscription(source, stream, grouping, fields, custom))
        return self

    def shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples over the tasks in turn; a task that would keep them waiting gets fewer."""
        return self._add(component, stream, SHUFFLE)

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Shuffle over the tasks in the sender's worker if it has any, else over all tasks."""
        return self._add(component, stream, LOCAL_OR_SHUFFLE)

    def fields_grouping(self, component: str, *fields: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send equal values of `fields` to the same task, from every process and after every restart."""
        return self._add(component, stream, FIELDS, fields)

    def partial_key_grouping(self, component: str, *fields: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Give each key two tasks; a tuple goes to the one to which this sender has sent fewer tuples."""
        return self._add(component, stream, PARTIAL_KEY, fields)

    def all_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to every task."""
        return self._add(component, stream, ALL)

    def global_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send every tuple to the task with the lowest id."""
        return self._add(component, stream, GLOBAL)

    def none_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to a random task, where the choice does not matter."""
        return self._add(component, stream, NONE)

    def direct_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the sender name the task with `emit_direct`; the stream must be declared direct."""
        return self._add(component, stream, DIRECT)

    def custom_grouping(self, component: str, grouping: CustomGrouping, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let your `CustomGrouping` choose the tasks."""
        return self._add(component, stream, CUSTOM, (), grouping)


class TopologyBuilder:
    """Collects components; `build()` checks them and makes the topology."""

    def __init__(self, config: Config | None = None) -> None:
        """`config` holds the topology's own settings; settings that are given where it is run win."""
        self._declared: list[Declarer] = []
        self._config = Config() if config is None else config

    def set_spout(self, id: str, spout: Spout, parallelism: int = 1, tasks: int | None = None) -> Declarer:
        """Add a spout under a unique id, with `parallelism` executors and `tasks` tasks (by default as many)."""
        declarer = Declarer(id, spout, parallelism, tasks)
        self._declared.append(declarer)
        return declarer

    def set_bolt(
        self, id: str, bolt: Bolt | BasicBolt | BatchBolt | WindowedBolt | ExactSink, parallelism: int = 1,
        tasks: int | None = None,
    ) -> BoltDeclarer:
        """Add a bolt under a unique id, with `parallelism` executors and `tasks` tasks (by default as many). Call the
        groupings of the result to give it inputs."""
        declarer = BoltDeclarer(id, bolt, parallelism, tasks)
        self._declared.append(declarer)
        return declarer

    def build(self) -> Topology:
        """Check all components and return the topology. Raises TopologyError, which lists every mistake."""
        mistakes: list[str] = []
        specs: dict[str, ComponentSpec] = {}
        for declarer in self._declared:
            spec = _check_component(declarer, mistakes)
            if spec.id in specs:
                mistakes.append(f"component id {spec.id!r} is used twice; every component needs an id of its own")
            else:
                specs[spec.id] = spec
        if not any(spec.is_spout for spec in specs.values()):
            mistakes.append("the topology has no spout; add at least one with set_spout")
        _add_late_streams(specs)
        for spec in specs.values():
            _check_inputs(spec, specs, mistakes)
        if not mistakes:
            specs = woven(specs, mistakes)
        if mistakes:
            raise TopologyError(mistakes)
        return Topology(specs, self._config)


def _check_component(declarer: Declarer, mistakes: list[str]) -> ComponentSpec:
    id_, component = declarer._id, declarer._component
    wants_bolt = isinstance(declarer, BoltDeclarer)
    _check_id(id_, mistakes)
    kinds = (Bolt, BasicBolt, BatchBolt, WindowedBolt, ExactSink) if wants_bolt else (Spout,)
    if not isinstance(component, kinds):
        what = "Bolt, BasicBolt or BatchBolt" if wants_bolt else "Spout"
        mistakes.append(
            f"component {id_!r} is {repr_of(component)}; allowed: an instance of {what}, or a function that "
            f"@{'bolt' if wants_bolt else 'spout'} decorates"
        )
    else:
        who = f"component {id_!r:.80}"
        _check_overrides(who, component, mistakes)
        if component.blocking and isinstance(component, BatchSpout):
            mistakes.append(
                f"component {id_!r} is a BatchSpout with blocking = True; allowed: False, a Spout with "
                "blocking = True, or a Source"
            )
        if isinstance(component, AsyncBolt):
            _check_count(id_, "max_in_flight", component.max_in_flight, mistakes)
    executors, tasks = _check_parallelism(id_, declarer._parallelism, declarer._tasks, mistakes)
    outputs: dict[str, Stream] = {}
    if isinstance(component, Component):
        try:
            outputs = parse_outputs(component.outputs)
        except Exception as error:  # `outputs` may be a property and raise anything
            mistakes.append(f"component {id_!r} declares bad outputs: {message_of(error)}")
    mistakes.extend(
        f"component {id_!r} declares a stream {name!r}; names that begin with {SYSTEM_PREFIX!r} are the system's"
        for name in outputs
        if name.startswith(SYSTEM_PREFIX)
    )
    config = {
        **_check_config(id_, component.component_config if isinstance(component, Component) else {}, mistakes),
        **_check_config(id_, declarer._config, mistakes),
    }
    return ComponentSpec(str(id_), component, executors, tasks, outputs, tuple(declarer._subscriptions), config)


def _check_id(id_: Any, mistakes: list[str]) -> None:
    if mistake := name_mistake(id_):
        mistakes.append(f"a component id {mistake}")
    elif id_.startswith(SYSTEM_PREFIX) or id_.endswith(RESULTS):
        mistakes.append(f"component id {id_!r} begins with {SYSTEM_PREFIX} or ends with {RESULTS}, as the system's do")
    elif set(id_) & set("/\\\0") or id_.startswith("."):
        # Its tasks' state lies beside what the cluster keeps there under names with a dot.
        mistakes.append(f"component id {id_!r} cannot be a file's name; allowed: no / or \\, and no . at its beginning")


def _check_overrides(who: str, component: Any, mistakes: list[str]) -> None:
    """Refuse what users put in place of what Squall's classes define: methods that would do nothing when called, as
    coroutines and generators do, and methods for values: `def exhausted(self)` is true, so it ends a spout."""
    kinds = [kind for kind in reversed(type(component).__mro__) if kind.__module__.startswith("squall.")]
    # As attributes of the class: a classmethod or a partialmethod is callable only once bound.
    bases = {name: getattr(kind, name, None) for kind in kinds for name in vars(kind) if name[0] != "_"}
    for name, ours in bases.items():
        defined = inspect.getattr_static(component, name)
        if ours is None or callable(ours):  # `fold`, a None, may become a method
            kind = deferred_kind(defined if ours is None else getattr(component, name))
            returns = getattr(ours, "__annotations__", {}).get("return", "")
            is_meant = kind == deferred_kind(ours) or (kind == GENERATOR and returns.startswith("Iterator"))  # `read`
            if kind is not None and not is_meant:
                mistakes.append(
                    f"{who} ({type(component).__name__}) defines {name} as {kind}: a call would do nothing; allowed: "
                    "a plain def (docs/async.md: bolts that wait)"
                )
        elif any(map(callable, (defined, getattr(type(component), name, None)))) or deferred_kind(
            getattr(defined, "fget", None)
        ):
            mistakes.append(f"{who} defines {name} as a method; allowed: a value, or a plain def under @property")


def _check_parallelism(id_: Any, executors: Any, tasks: Any, mistakes: list[str]) -> tuple[int, int]:
    n_executors = _check_count(id_, "parallelism", executors, mistakes)
    n_tasks = n_executors if tasks is None else _check_count(id_, "tasks", tasks, mistakes)
    if n_executors > n_tasks:
        mistakes.append(
            f"component {id_!r} has {n_executors} executors for {n_tasks} tasks; executors cannot exceed tasks"
        )
    return n_executors, n_tasks


def _check_count(id_: Any, what: str, value: Any, mistakes: list[str]) -> int:
    if isinstance(value, int) and value >= 1:
        return value
    mistakes.append(f"component {id_!r} has {what} {repr_of(value)}; allowed: an integer from 1 up")
    return 1


def _check_config(id_: Any, config: Mapping[str, Any], mistakes: list[str]) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        mistakes.append(f"component {id_!r} has component_config {repr_of(config)}; allowed: a dict")
        return {}
    found, kept = check_settings(config)
    mistakes += [f"component {id_!r}: {mistake}" for mistake in found]
    mistakes += [
        f"component {id_!r}: setting {key} cannot be set for one component; those that can: "
        f"{', '.join(COMPONENT_SETTINGS)}"
        for key in config if canonical_name(key) in kept and canonical_name(key) not in COMPONENT_SETTINGS
    ]
    return kept


def _add_late_streams(specs: dict[str, ComponentSpec]) -> None:
    """Declare the streams of late tuples that their bolts do not, with the fields of the bolts' first input."""
    late = {
        id_: stream for id_, spec in specs.items()
        if isinstance(spec.component, WindowedBolt) and spec.component.windowing is not None
        and (stream := spec.component.windowing.late_stream) is not None and spec.subscriptions
    }
    for _ in late:  # each may be the input of another
        for id_, stream in late.items():
            spec, first = specs[id_], specs[id_].subscriptions[0]
            source = specs.get(first.source) if isinstance(first.source, str) else None
            shape = source.outputs.get(first.stream) if source is not None and isinstance(first.stream, str) else None
            if shape is not None and stream not in spec.outputs:
                specs[id_] = replace(spec, outputs={**spec.outputs, stream: Stream(*shape.fields)})


def _check_inputs(spec: ComponentSpec, specs: dict[str, ComponentSpec], mistakes: list[str]) -> None:
    if not spec.is_spout and not spec.subscriptions:
        mistakes.append(f"bolt {spec.id!r} has no input; subscribe it to a stream with one of the groupings")
    needed = spec.component.needed_fields if isinstance(spec.component, Bolt | BatchBolt | ExactSink) else ()
    for subscription in spec.subscriptions:
        if isinstance(subscription.custom, CustomGrouping):
            who = f"the custom grouping of bolt {spec.id!r:.80}"
            _check_overrides(who, subscription.custom, mistakes)
        mistake = _input_mistake(subscription, specs, () if callable(needed) else needed)
        if mistake:
            mistakes.append(f"bolt {spec.id!r} {mistake}")


def _input_mistake(sub: Subscription, specs: dict[str, ComponentSpec], needed: Sequence[str]) -> str | None:
    source = specs.get(sub.source) if isinstance(sub.source, str) else None
    if source is None:
        return f"subscribes to unknown component {sub.source!r}{_near(sub.source, specs)}"
    shape = source.outputs.get(sub.stream) if isinstance(sub.stream, str) else None
    if shape is None:
        declared = ", ".join(map(repr, source.outputs)) or "none"
        return f"subscribes to unknown stream {sub.stream!r} of {sub.source!r}; its streams: {declared}"
    if lacks := [name for name in needed if name not in shape.fields]:
        return (
            f"needs field {', '.join(map(repr, lacks))}, which stream {sub.stream!r} of {sub.source!r} does not have; "
            f"its fields: {', '.join(shape.fields)}"
        )
    if sub.grouping in (FIELDS, PARTIAL_KEY):
        if not sub.fields:
            return f"groups {sub.source!r} by no field; name at least one of {', '.join(shape.fields)}"
        unknown = [name for name in sub.fields if name not in shape.fields]
        if unknown:
            return (
                f"groups {sub.source!r} stream {sub.stream!r} by unknown field {', '.join(map(repr, unknown))}; "
                f"its fields: {', '.join(shape.fields)}"
            )
    if sub.grouping == DIRECT and not shape.direct:
        return (
            f"uses direct grouping on stream {sub.stream!r} of {sub.source!r}, which is not declared direct; "
            f"declare it as Stream({', '.join(map(repr, shape.fields))}, direct=True)"
        )
    if sub.grouping != DIRECT and shape.direct:
        return f"uses {sub.grouping} grouping on direct stream {sub.stream!r} of {sub.source!r}; use direct_grouping"
    if sub.grouping == CUSTOM and not isinstance(sub.custom, CustomGrouping):
        return f"has {sub.custom!r:.80} as a custom grouping; allowed: a CustomGrouping"
    return None


def _near(name: str, names: Iterable[str]) -> str:
    known = list(names)
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; components: {', '.join(map(repr, known))}"
