"""A topology: the graph of components that a builder makes and a cluster runs. Plain data, picklable, immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from squall.engine.api.component import BasicBolt, BatchBolt, Bolt, CustomGrouping, Spout
from squall.engine.api.config import Config
from squall.engine.api.stream import ACKER_COMPONENT, Stream
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of

SHUFFLE = "shuffle"
LOCAL_OR_SHUFFLE = "local_or_shuffle"
FIELDS = "fields"
PARTIAL_KEY = "partial_key"
ALL = "all"
GLOBAL = "global"
NONE = "none"
DIRECT = "direct"
CUSTOM = "custom"
ANY_TASK = frozenset({SHUFFLE, LOCAL_OR_SHUFFLE, PARTIAL_KEY, NONE})
"""Groupings that may give a tuple to another task each time that it comes."""


@dataclass(frozen=True)
class Subscription:
    """One input of a bolt: a stream, and the grouping that spreads its tuples over the bolt's tasks."""

    source: str
    stream: str
    grouping: str
    fields: tuple[str, ...] = ()
    custom: CustomGrouping | None = None


@dataclass(frozen=True)
class ComponentSpec:
    """A component and its settings in a topology."""

    id: str
    component: Spout | Bolt | BasicBolt | BatchBolt
    executors: int
    tasks: int
    outputs: Mapping[str, Stream]
    subscriptions: tuple[Subscription, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    """This component's own settings, by Squall's name."""

    @property
    def is_spout(self) -> bool:
        return isinstance(self.component, Spout)

    @property
    def kind(self) -> str:
        return "spout" if self.is_spout else "bolt"


@dataclass(frozen=True)
class Topology:
    """What `TopologyBuilder.build` returns, and `run`, `submit` and the tests take: all components, in the order of
    declaration."""

    components: Mapping[str, ComponentSpec]
    """By name."""
    config: Config = field(default_factory=Config)
    """Settings that its author gave it; those that are given where it is run win."""
    logging: object = field(default=None, compare=False, repr=False)
    """What the submitting program has set up (see `scheduler.common.environment`)."""

    def __getitem__(self, component: str) -> ComponentSpec:
        return self.components[component]

    def configured(self, config: Config | None) -> Config:
        """Return its settings, overridden by those of `config`. UsageError if that is no Config, or a component cannot
        run with them."""
        if not isinstance(config, Config | None):
            raise UsageError(f"config is {config!r:.80}; allowed: a Config, such as Config(workers=2), or None")
        config = self.config if config is None else self.config.replace(**config.explicit())
        for spec in self.bolts:
            if mistake := spec.component.settings_mistake(config):
                raise UsageError(f"bolt {spec.id!r} {mistake}")
        return config

    @property
    def spouts(self) -> list[ComponentSpec]:
        """Its spouts, in the order of declaration."""
        return [spec for spec in self.components.values() if spec.is_spout]

    @property
    def bolts(self) -> list[ComponentSpec]:
        """Its bolts, in the order of declaration."""
        return [spec for spec in self.components.values() if not spec.is_spout]

    def subscribers(self, source: str, stream: str) -> list[tuple[ComponentSpec, Subscription]]:
        """The bolts that read a stream, in the order of declaration."""
        return [
            (spec, subscription)
            for spec in self.components.values()
            for subscription in spec.subscriptions
            if (subscription.source, subscription.stream) == (source, stream)
        ]

    def downstream(self) -> list[str]:
        """Ids of all components, by hops from the nearest spout; those that no spout reaches come last."""
        order = [spec.id for spec in self.spouts]
        for component in order:
            for spec in self.components.values():
                if spec.id not in order and any(component == one.source for one in spec.subscriptions):
                    order.append(spec.id)
        return order + [name for name in self.components if name not in order]

    def layout(self, ackers: int) -> list[tuple[str, str, int, int]]:
        """(id, kind, tasks, executors) of every component, ackers included: all that Nimbus needs to place them."""
        rows = [(spec.id, spec.kind, spec.tasks, spec.executors) for spec in self.components.values()]
        if ackers:
            rows.append((ACKER_COMPONENT, "acker", ackers, ackers))
        return rows


def check_topology(who: str, topology: object) -> None:
    """Refuse what is no topology. `who`: the function that it was given to."""
    if not isinstance(topology, Topology):
        raise UsageError(f"{who} needs the Topology that TopologyBuilder.build() returns, not {repr_of(topology)}")
