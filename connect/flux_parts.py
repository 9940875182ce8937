"""The parts of a Flux file: the keys that each may have, and the types of their values.

Guarantees: what `connect.flux_file` accepts, and docs/schemas/flux.json tells editors, is this table. The names are
Storm's.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
IfSet = Annotated[int, msgspec.Meta(ge=-1, description="-1: not set.")]
Load = Annotated[float, msgspec.Meta(description="Read, and ignored: Squall places no component by memory or CPU.")]
Arguments = list[Any] | dict[str, Any]
"""By position, or by name; `{ref: ID}` or `{reflist: [ID, ...]}` in it stands for components."""


class FluxPart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel", dict=True):
    """A mapping in the file."""

    @property
    def places(self) -> dict[str, str]:
        """FILE:LINE:COLUMN of each value, by its key; of the mapping itself, by no key."""
        places: dict[str, str] = self.__dict__["places"]
        return places

    def at(self, key: str = "") -> str:
        """The place of a key's value; of the mapping, if the key is not there."""
        return self.places.get(key, self.places[""])


class PropertyDef(FluxPart):
    """An attribute to set."""

    name: str
    value: Any = None
    ref: str | None = None
    reflist: list[str] | None = None


class MethodDef(FluxPart):
    """A method to call once the object is there."""

    name: str
    args: Arguments = []


class ObjectDef(FluxPart):
    """An object to make: a class or a function by its dotted path, called with arguments."""

    class_name: str
    constructor_args: Arguments = []
    factory: str | None = None
    factory_args: Arguments = []
    properties: list[PropertyDef] = []
    config_methods: list[MethodDef] = []


class BeanDef(ObjectDef, kw_only=True):
    """A component, to which others refer."""

    id: str


class VertexDef(BeanDef):
    """A spout or a bolt."""

    parallelism: Count = 1
    num_tasks: IfSet = -1
    config: dict[str, Any] = {}
    on_heap_memory_load: Load = -1
    off_heap_memory_load: Load = -1
    cpu_load: Load = -1


class GroupingDef(FluxPart):
    """How tuples are spread."""

    type: Literal[
        "ALL", "CUSTOM", "DIRECT", "FIELDS", "GLOBAL", "LOCAL_OR_SHUFFLE", "NONE", "PARTIAL_KEY", "SHUFFLE"
    ]
    stream_id: str = "default"
    args: list[str] = []
    custom_class: ObjectDef | None = None


class StreamDef(FluxPart):
    """An input of a bolt."""

    from_: str = msgspec.field(name="from")
    to: str
    grouping: GroupingDef
    name: str = ""


class IncludeDef(FluxPart):
    """Another file, whose contents count as this one's."""

    file: str
    override: bool = False
    resource: bool = False


class SourceDef(ObjectDef):
    """Python that makes the topology."""

    method_name: str = "getTopology"


class TopologyDef(FluxPart):
    """A file."""

    name: str | None = None
    config: dict[str, Any] = {}
    includes: list[IncludeDef] = []
    components: list[BeanDef] = []
    spouts: list[VertexDef] = []
    bolts: list[VertexDef] = []
    streams: list[StreamDef] = []
    worker_hooks: list[Any] = []
    topology_source: SourceDef | None = None

    def include(self, other: TopologyDef, override: bool) -> None:
        """Add what another file has; of what both have, take the other's with `override`, as in Storm."""
        first, last = (self, other) if override else (other, self)
        self.name = first.name if last.name is None else last.name
        self.topology_source = last.topology_source or first.topology_source
        self.config = {**first.config, **last.config}
        self.__dict__["places"] = {**first.places, **last.places}
        for key in ("components", "spouts", "bolts"):
            own, others = ({bean.id: bean for bean in getattr(one, key)} for one in (self, other))
            setattr(self, key, list((own | others if override else own | (others | own)).values()))
        self.streams += other.streams
