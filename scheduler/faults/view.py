"""The possible targets of faults at one moment: nodes, workers, and the tasks of each topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from squall.engine.errors import UsageError
from squall.scheduler.faults.fault import shown

_LISTED = 12
"""Names listed at most in the error for a wrong name: more would not be read."""


@dataclass(frozen=True, slots=True)
class Place:
    """The worker of a task."""

    topology: str
    component: str
    task: int
    worker: str = ""
    """Empty if it has not been placed yet."""


@dataclass(frozen=True, slots=True)
class View:
    """The cluster's possible targets."""

    nodes: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    """ "node-1:6700": the slots that have a worker."""
    topologies: Mapping[str, Mapping[str, tuple[Place, ...]]] = field(default_factory=dict)
    """Name -> component -> its tasks, in the order of their numbers."""
    has_keeper: bool = True
    """Whether a keeper starts dead daemons again."""
    received: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """(topology, component) -> names of the fields of the tuples that it executes; none for a spout. Without an entry,
    they are not known."""

    def places(self) -> Iterator[Place]:
        for components in self.topologies.values():
            for places in components.values():
                yield from places

    def workers_of_node(self, node: str) -> tuple[str, ...]:
        return tuple(worker for worker in self.workers if worker.rpartition(":")[0] == node)

    def components(self) -> list[str]:
        """The components' names as users may write them."""
        several = len(self.topologies) > 1
        return [
            f"{topology}/{component}" if several else component
            for topology, components in self.topologies.items()
            for component in components
        ]

    def find_component(self, name: str) -> tuple[Place, ...] | None:
        """The tasks of a component; None if there is none. UsageError if several topologies have one of this name."""
        topology, slash, component = name.partition("/")
        if slash:
            return self.topologies.get(topology, {}).get(component)
        found = {topology: parts[name] for topology, parts in self.topologies.items() if name in parts}
        if len(found) > 1:
            full = " or ".join(f"{topology}/{name}" for topology in found)
            raise UsageError(f"component {shown(name)} is in several topologies; write {full}")
        return next(iter(found.values()), None)

    def component(self, name: str) -> tuple[Place, ...]:
        places = self.find_component(name)
        if places is None:
            raise UsageError(f"there is no component {shown(name)}; components are {listed(self.components())}")
        return places

    def task(self, name: str, index: int) -> Place:
        places = self.component(name)
        if index >= len(places):
            last = f"{name}[0] to {name}[{len(places) - 1}]" if len(places) > 1 else f"{name}[0]"
            raise UsageError(f"there is no task {name}[{index}]; tasks are {last}")
        return places[index]

    def check_node(self, name: str) -> None:
        if name not in self.nodes:
            raise UsageError(f"there is no node {shown(name)}; nodes are {listed(self.nodes)}")


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names for messages, with a limit."""
    more = len(names) - _LISTED
    return ", ".join([*names[:_LISTED], *([f"{more} more"] if more > 0 else [])]) or "none"
