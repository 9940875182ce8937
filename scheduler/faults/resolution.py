"""Checks a fault against the catalogue, and finds what its targets mean in a view of the cluster.

Guarantees: the same targets, view and generator give the same result. An unknown target is a UsageError that lists the
known ones; a known target that is not there now (a topology without workers) is a ClusterError.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from squall.engine.api.stream import ACKER_COMPONENT
from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.faults.catalogue import CATALOGUE, ActsOn, Kind, kind_of
from squall.scheduler.faults.fault import Fault, shown
from squall.scheduler.faults.target import DAEMONS, AnyTarget, LinkTarget, Sort, Target, parse_target, quoted

_T = TypeVar("_T")
ANYBODY = "*"
"""As an end of a link: every worker."""
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
    """The cluster's possible targets at one moment."""

    nodes: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    """ "node-1:6700": the slots that have a worker."""
    topologies: Mapping[str, Mapping[str, tuple[Place, ...]]] = field(default_factory=dict)
    """Name -> component -> its tasks, in the order of their numbers."""

    def places(self) -> Iterator[Place]:
        for components in self.topologies.values():
            for places in components.values():
                yield from places

    def component(self, name: str) -> tuple[Place, ...]:
        """The tasks of a component, empty if there is none; with several topologies, it may say TOPOLOGY/COMPONENT."""
        topology, slash, component = name.partition("/")
        if slash:
            return self.topologies.get(topology, {}).get(component, ())
        found = {topology: parts[name] for topology, parts in self.topologies.items() if name in parts}
        if len(found) > 1:
            full = " or ".join(f"{topology}/{name}" for topology in found)
            raise UsageError(f"component {shown(name)} is in several topologies; write {full}")
        return next(iter(found.values()), ())

    def known(self) -> str:
        """The names of workers, nodes and components, for messages."""
        components = [quoted(component) for parts in self.topologies.values() for component in parts]
        names = {"components": components, "workers": self.workers, "nodes": self.nodes}
        return "; ".join(f"{what} are {listed(found)}" for what, found in names.items())


@dataclass(frozen=True, slots=True)
class Process:
    """A worker or a daemon."""

    sort: Sort
    name: str = ""
    """For a worker its slot, for a supervisor or forking parent its node; empty for Nimbus."""


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """The links from one worker, node (all its workers, also later ones) or ANYBODY to another."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The things that a fault acts on, of the sort that `Kind.acts_on` names."""

    processes: tuple[Process, ...] = ()
    nodes: tuple[str, ...] = ()
    tasks: tuple[Place, ...] = ()
    links: tuple[LinkEnds, ...] = ()


def resolve(kind: Kind, texts: Sequence[str], view: View, rng: random.Random | None = None) -> Resolved:
    """Find what these targets mean. Without a generator nothing is drawn, and it need not be there yet."""
    targets = [parse_target(text) for text in texts]
    if not targets and kind.acts_on is not ActsOn.LINKS:
        raise UsageError(f"{kind.name} needs a target: {kind.acts_on}")
    finder = _Finder(kind, view, rng)
    match kind.acts_on:
        case ActsOn.LINKS:
            return Resolved(links=finder.links(targets))
        case ActsOn.TASKS:
            found = Resolved(tasks=finder.each(targets, finder.places))
        case ActsOn.NODES:
            found = Resolved(nodes=finder.each(targets, finder.nodes))
        case ActsOn.PROCESSES:
            found = Resolved(processes=finder.each(targets, finder.processes))
    if rng is not None and found == Resolved():
        raise ClusterError(f"{kind.name}: there is no process now for {', '.join(texts)} (not placed yet?)")
    return found


class _Finder:
    def __init__(self, kind: Kind, view: View, rng: random.Random | None) -> None:
        self._kind = kind
        self._view = view
        self._rng = rng

    def each(self, targets: Iterable[AnyTarget], find: Callable[[Target], Iterable[_T]]) -> tuple[_T, ...]:
        """The things that all targets mean, each once."""
        found: dict[_T, None] = {}
        for target in targets:
            if isinstance(target, LinkTarget):
                raise self._refused(target)
            for meant in self._meant(target):
                found.update(dict.fromkeys(find(meant)))
        return tuple(found)

    def places(self, target: Target) -> Sequence[Place]:
        """The tasks that a target means."""
        if target.sort in DAEMONS:
            raise self._refused(target)
        if target.sort in (Sort.NODE, Sort.WORKER):
            workers = self._workers(target)
            return [place for place in self._view.places() if place.worker in workers]
        return self._tasks(target)

    def _tasks(self, target: Target) -> Sequence[Place]:
        """The tasks of a component, or one of them."""
        found = self._view.component(target.name)
        if not found:
            raise UsageError(f"there is no {target.sort} {shown(target.name)}; {self._view.known()}")
        if target.index is None:
            return found
        if target.index >= len(found):
            last = f"{target.name}[{len(found) - 1}]"
            raise UsageError(f"there is no task {target.name}[{target.index}]; the last one is {last}")
        return [found[target.index]]

    def nodes(self, target: Target) -> list[str]:
        if target.sort not in (Sort.NODE, Sort.FORKING_PARENT):
            raise self._refused(target)
        return [self._node(target)]

    def processes(self, target: Target) -> list[Process]:
        if target.sort not in DAEMONS:
            return [Process(Sort.WORKER, worker) for worker in self._workers(target)]
        return [Process(target.sort, "" if target.sort is Sort.NIMBUS else self._node(target))]

    def links(self, targets: Sequence[AnyTarget]) -> tuple[LinkEnds, ...]:
        if not targets:
            return (LinkEnds(ANYBODY, ANYBODY),)
        ways: list[tuple[list[str], list[str]]] = []
        plain = []
        for target in targets:
            if isinstance(target, LinkTarget):
                sender, receiver = self._ends(target.sender), self._ends(target.receiver)
                ways += [(sender, receiver), (receiver, sender)] if target.both else [(sender, receiver)]
            else:
                plain.append(self._ends(target))
        between = list(combinations(plain, 2)) if len(plain) > 1 else [(only, [ANYBODY]) for only in plain]
        ways += [way for one, other in between for way in ((one, other), (other, one))]
        links = [LinkEnds(one, other) for senders, receivers in ways for one in senders for other in receivers]
        found = tuple(dict.fromkeys(link for link in links if link.sender != link.receiver or ":" not in link.sender))
        if links and not found:
            raise UsageError(f"{', '.join(map(str, targets))} is the way from a worker to itself, which is no link")
        return found

    def _ends(self, target: Target) -> list[str]:
        """The ends of links that a target means. A node stays a node, so that later workers belong to it too."""
        if target.sort in DAEMONS:
            raise self._refused(target)
        meant = self._meant(target)
        return [end for one in meant for end in ([self._node(one)] if one.sort is Sort.NODE else self._workers(one))]

    def _meant(self, target: Target) -> list[Target]:
        """The worker, node, component or task that a bare name means, or a random worker, drawn or all candidates."""
        if target.is_random:
            candidates = self._candidates(target)
            if self._rng is None:
                return candidates
            if not candidates:
                raise ClusterError(f"there is no worker to draw for {str(target)!r}")
            return [self._rng.choice(candidates)]
        if target.sort is not Sort.NAME:
            return [target]
        view, name = self._view, target.name
        sorts = [sort for sort, names in ((Sort.WORKER, view.workers), (Sort.NODE, view.nodes)) if name in names]
        if view.component(name):
            sorts.append(Sort.COMPONENT)
        if not sorts:
            raise UsageError(f"there is no worker, node or component {shown(name)}; {view.known()}")
        if len(sorts) > 1:
            forms = " or ".join(str(Target(sort, name)) for sort in sorts)
            raise UsageError(f"{shown(name)} is a {' and a '.join(sorts)}; write {forms}")
        return [Target(sorts[0], name)]

    def _candidates(self, target: Target) -> list[Target]:
        """The workers of which a random one is drawn."""
        workers = set(self._view.workers)
        if target.name:
            named = Target(Sort.NAME if target.index is None else Sort.TASK, target.name, target.index)
            workers = {place.worker for meant in self._meant(named) for place in self.places(meant)} - {""}
        return [Target(Sort.WORKER, worker) for worker in sorted(workers)]

    def _workers(self, target: Target) -> list[str]:
        """The workers that a specific target means."""
        workers = self._view.workers
        if target.sort is Sort.NODE:
            node = self._node(target)
            return [worker for worker in workers if worker.rpartition(":")[0] == node]
        if target.sort is Sort.WORKER and target.index is None and target.name in workers:
            return [target.name]
        return sorted({place.worker for place in self._tasks(target)} - {""})

    def _node(self, target: Target) -> str:
        if target.name not in self._view.nodes:
            raise UsageError(f"there is no node {shown(target.name)}; nodes are {listed(self._view.nodes)}")
        return target.name

    def _refused(self, target: AnyTarget) -> UsageError:
        return UsageError(f"{self._kind.name} takes no {target}; it takes {self._kind.acts_on}")


def view_of(nodes: Sequence[str], assigned: Iterable[tuple[TopologyRecord, Assignment | None]]) -> View:
    """The view of a cluster. `assigned`: topologies and their assignments; None: not placed yet."""
    workers: dict[str, None] = {}
    topologies: dict[str, dict[str, tuple[Place, ...]]] = {}
    for record, assignment in assigned:
        if assignment is not None:
            workers.update(dict.fromkeys(map(str, assignment.workers)))
        topologies[record.name] = {
            component.id: _placed(record.name, component.id, assignment) if assignment is not None
            else tuple(Place(record.name, component.id, -index) for index in range(component.tasks))
            for component in record.components
            if component.id != ACKER_COMPONENT
        }
    return View(tuple(nodes), tuple(workers), topologies)


def _placed(topology: str, component: str, assignment: Assignment) -> tuple[Place, ...]:
    found = [
        Place(topology, component, task, str(slot))
        for slot, executors in zip(assignment.workers, assignment.executors, strict=True)
        for executor in executors
        if executor.component == component
        for task in range(executor.first_task, executor.last_task + 1)
    ]
    return tuple(sorted(found, key=lambda place: place.task))


def listed(names: Sequence[str]) -> str:
    """Names for messages, with a limit."""
    more = len(names) - _LISTED
    return ", ".join([*names[:_LISTED], *([f"{more} more"] if more > 0 else [])]) or "none"


def check(fault: Fault, view: View | None = None) -> None:
    """UsageError for a mistake in a fault; with a view, also in its targets."""
    kind = kind_of(fault)
    kind.params_of(fault)
    if fault.probability is not None and not kind.is_drawn:
        drawn = ", ".join(other.name for other in CATALOGUE.values() if other.is_drawn)
        raise UsageError(f"{kind.name} takes no probability; faults that do are {drawn}")
    if kind.lasts_secs is None and fault.for_secs is not None:
        raise UsageError(f"{kind.name} is over at once; it takes no `for`")
    if (fault.times or 1) > 1 and fault.every_secs is None:
        raise UsageError(f"{fault.times} times of {kind.name} need an `every`, such as every 5s")
    if view is not None:
        resolve(kind, fault.targets, view)
