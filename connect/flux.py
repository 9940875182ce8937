"""Makes a topology of a Flux file (`connect.flux_file`): its Python classes are imported and called.

Guarantees
    * A mistake is told with the place in the file that is to blame: a class that is not there, arguments that it does
      not take, what it raises (with the line of users' code), ids of nothing, and all that `TopologyBuilder` finds.
    * A component is made once, however many refer to it, and in any order; one that needs itself is a mistake.

Relies on: the import path, which leads to the classes.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from squall.connect.flux_file import Reference, near, read_flux, refuse
from squall.connect.flux_parts import Arguments, FluxPart, ObjectDef, SourceDef, StreamDef, TopologyDef
from squall.connect.multilang.shell_bolt import ShellBolt
from squall.connect.multilang.shell_component import ShellComponent, ShellSpout
from squall.engine.api.component import Component
from squall.engine.api.config import Config
from squall.engine.api.stream import DEFAULT_STREAM, Stream, parse_outputs
from squall.engine.api.topology import Topology
from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import ConfigError, SquallError, TopologyError, UsageError
from squall.engine.foreign.text import message_of, repr_of, text_of_error, where_of

JAVA_CLASSES = {
    "org.apache.storm.flux.wrappers.spouts.FluxShellSpout": "squall.connect.flux.FluxShellSpout",
    "org.apache.storm.flux.wrappers.bolts.FluxShellBolt": "squall.connect.flux.FluxShellBolt",
}
"""Storm's classes that have a counterpart with the same arguments and methods."""
_LOADS = {"on_heap_memory_load": "onHeapMemoryLoad", "off_heap_memory_load": "offHeapMemoryLoad", "cpu_load": "cpuLoad"}


class _Mistake(UsageError):
    """One that ends what is being made."""

    def __init__(self, place: str, text: str) -> None:
        super().__init__(" ".join(f"{place}: {text}".split()))


def load_flux(path: str, arguments: list[str]) -> tuple[Topology, list[str]]:
    """Make the topology of a file, with ARGS for its variables. Also returns lines on what of the file is ignored.
    UsageError names every mistake."""
    found = read_flux(path, arguments)
    making = _Making(found)
    topology = making.by_streams() if found.topology_source is None else making.by_source(found.topology_source)
    return topology, [
        f"{each.at(key)}: {each.id!r} has {key}, which is ignored: Squall places no component by memory or CPU"
        for each in (*found.spouts, *found.bolts) for name, key in _LOADS.items() if getattr(each, name) >= 0
    ]


class _Making:
    """The objects of one file."""

    def __init__(self, file: TopologyDef) -> None:
        self.mistakes: list[str] = []
        self._file = file
        self._beans = {bean.id: bean for bean in file.components}
        self._made: dict[str, Any] = {}
        self._being_made: list[str] = []
        self._config = self._settings()

    def by_streams(self) -> Topology:
        """The topology of spouts, bolts and streams."""
        builder = TopologyBuilder(self._config)
        for bean in self._file.components:
            with self._noted():
                self._component(bean.id, bean.at())
        declarers: dict[str, Any] = {}
        for kind, vertices in (("spout", self._file.spouts), ("bolt", self._file.bolts)):
            for each in vertices:
                with self._noted():
                    made = self._object(each, f"{kind} {each.id!r}")
                    tasks = None if each.num_tasks == -1 else each.num_tasks
                    declared = getattr(builder, f"set_{kind}")(each.id, made, each.parallelism, tasks)
                    declarers[each.id] = declared.set_config(**each.config)
        first: dict[Any, StreamDef] = {}
        for stream in self._file.streams:
            with self._noted():
                self._subscribe(stream, declarers)
            other = first.setdefault((stream.from_, stream.grouping.stream_id, stream.to), stream)
            if other is not stream:
                self.mistakes.append(f"{stream.at()}: bolt {stream.to!r} has this input twice, first at {other.at()}")
        try:
            topology = builder.build()
        except TopologyError as error:
            # After another mistake, "has no input" and "has no spout" may only follow from that.
            self.mistakes += [
                f"{self._blamed(mistake)}: {mistake}" for mistake in error.mistakes
                if not self.mistakes or " has no " not in mistake
            ]
        refuse(self.mistakes)
        return topology

    def by_source(self, source: SourceDef) -> Topology:
        """The topology that Python makes."""
        place = source.at("methodName")
        if self._file.spouts or self._file.bolts or self._file.streams:
            self.mistakes.append(f"{place}: beside a topologySource there can be no spouts, bolts and streams")
        refuse(self.mistakes)
        method = self._attribute(self._object(source, "topologySource"), source.method_name, source, "methodName")
        with _told(place, f"topologySource: {source.method_name}()"):
            found = method(self._file.config)
        if not isinstance(found, Topology):
            raise _Mistake(place, f"{source.method_name}() returned {repr_of(found)}; allowed: a Topology")
        return replace(found, config=found.configured(self._config))

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except _Mistake as mistake:
            self.mistakes.append(str(mistake))

    def _settings(self) -> Config:
        kept: dict[str, Any] = {}
        for key, value in self._file.config.items():
            try:
                Config(**kept, **{key: value})
                kept[key] = value
            except ConfigError as error:
                self.mistakes.append(f"{self._file.at(f'config.{key}')}: {error}")
        return Config(**kept)

    def _component(self, id_: str, place: str) -> Any:
        if id_ in self._being_made:
            raise _Mistake(place, f"component {id_!r} needs itself: {' -> '.join([*self._being_made, id_])}")
        if id_ not in self._beans:
            raise _Mistake(place, f"no component {id_!r}{near(id_, self._beans)}")
        if id_ not in self._made:
            self._being_made.append(id_)
            try:
                self._made[id_] = self._object(self._beans[id_], f"component {id_!r}")
            except _Mistake as mistake:
                self._made[id_] = mistake
            self._being_made.pop()
        if isinstance(found := self._made[id_], _Mistake):
            raise found
        return found

    def _object(self, bean: ObjectDef, who: str) -> Any:
        """Make an object, and do to it what its properties and configMethods say."""
        path = JAVA_CLASSES.get(bean.class_name, bean.class_name)
        module, _, name = path.rpartition(".")
        place = bean.at("className")
        with _told(place, f"{who}: importing {module or path} (from the file's folder, or --app-dir)"):
            found: Any = importlib.import_module(module or path)
        for part in name.split("$"):
            found = self._attribute(found, part, bean, "className", who)
        made = self._called(found, bean, who)
        for each in bean.properties:
            self._attribute(made, each.name, each, "name", who)
            if len(given := each.places.keys() & {"value", "ref", "reflist"}) != 1:
                raise _Mistake(each.at(), f"{who}: property {each.name!r} needs one of value, ref and reflist")
            ids = each.reflist if each.ref is None else each.ref
            value = each.value if ids is None else self._argument(Reference(ids, each.at(*given)))
            with _told(each.at(), f"{who}: setting {each.name}"):
                setattr(made, each.name, value)
        for call in bean.config_methods:
            method = self._attribute(made, call.name, call, "name", who)
            positional, named = self._resolved(call.args)
            with _told(call.at(), f"{who}: {call.name}()"):
                method(*positional, **named)
        return made

    def _called(self, found: Any, bean: ObjectDef, who: str) -> Any:
        """Call the class, or its factory."""
        keys, given, name = ["constructorArgs", "factoryArgs"], bean.constructor_args, bean.class_name
        if bean.factory is not None:
            found = self._attribute(found, bean.factory, bean, "factory", who)
            keys, given, name = keys[::-1], bean.factory_args, f"{name}.{bean.factory}"
        if keys[1] in bean.places:
            raise _Mistake(bean.at(keys[1]), f"{who}: {keys[1]} have no effect; allowed: {keys[0]}")
        if isinstance(found, Component) and not given:
            # What @spout and @bolt make of a function is a component already.
            return found
        positional, named = self._resolved(given)
        with _told(bean.at(keys[0]), f"{who}: {name}()"):
            return found(*positional, **named)

    def _attribute(self, found: Any, name: str, part: FluxPart, key: str, who: str = "topologySource") -> Any:
        if hasattr(found, name):
            return getattr(found, name)
        hint = near(name, [each for each in dir(found) if not each.startswith("_")]).partition("; allowed")[0]
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        what = f"no class {found.__name__}.{name}" if isinstance(found, ModuleType) else f"{kind} has no {name!r}"
        raise _Mistake(part.at(key), f"{who}: {what}{hint}")

    def _resolved(self, arguments: Arguments) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by position, and by name."""
        if isinstance(arguments, dict):
            return [], {name: self._argument(value) for name, value in arguments.items()}
        return [self._argument(value) for value in arguments], {}

    def _argument(self, value: Any) -> Any:
        if not isinstance(value, Reference):
            return value
        if isinstance(value.ids, str):
            return self._component(value.ids, value.place)
        return [self._component(id_, value.place) for id_ in value.ids]

    def _subscribe(self, stream: StreamDef, declarers: dict[str, Any]) -> None:
        bolts = [each.id for each in self._file.bolts]
        if stream.to not in bolts:
            raise _Mistake(stream.at("to"), f"no bolt {stream.to!r}{near(stream.to, bolts)}")
        grouping = stream.grouping
        given: list[Any] = grouping.args if grouping.type in ("FIELDS", "PARTIAL_KEY") else []
        if grouping.type == "CUSTOM":
            given = [grouping.custom_class and self._object(grouping.custom_class, "customClass")]
        # A component that could not be made has its mistake already.
        ids = [each.id for each in (*self._file.spouts, *self._file.bolts)]
        if stream.to in declarers and (stream.from_ in declarers or stream.from_ not in ids):
            group = getattr(declarers[stream.to], f"{grouping.type.lower()}_grouping")
            group(stream.from_, *given, stream=grouping.stream_id)

    def _blamed(self, mistake: str) -> str:
        """The place of what the builder has found a mistake in."""
        for stream in self._file.streams:
            if mistake.startswith(f"bolt {stream.to!r} ") and repr(stream.from_) in mistake:
                return stream.at()
        vertices = (*self._file.spouts, *self._file.bolts)
        return next((each.at() for each in vertices if repr(each.id) in mistake[:len(each.id) + 20]), self._file.at())


@contextlib.contextmanager
def _told(place: str, doing: str) -> Iterator[None]:
    """Tell what users' code raises inside."""
    try:
        yield
    except Exception as error:
        # The message of an own error suffices.
        said = message_of(error) if isinstance(error, SquallError) else f"{doing} raised {text_of_error(error)}"
        raise _Mistake(place, f"{said} {where_of(error)}") from error


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
