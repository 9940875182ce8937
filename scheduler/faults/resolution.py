"""Checks a fault against the catalogue, and finds what its targets mean in a view of the cluster.

Guarantees: the same targets, view and generator give the same result. An unknown target is a UsageError that lists the
known ones; a known target that is not there now (a topology without workers) is a ClusterError.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from squall.engine.api.stream import ACKER_COMPONENT
from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.faults.catalogue import CATALOGUE, ActsOn, Kind, Value, shown
from squall.scheduler.faults.sentence import (
    BOTH_WAYS,
    COMPONENT,
    DAEMONS,
    FORKING_PARENT,
    NAME,
    NODE,
    RANDOM,
    RANDOM_OF,
    SUPERVISOR,
    TASK,
    WORKER,
    Fault,
    LinkTarget,
    Target,
    parse_target,
    quoted,
)

ANYBODY = "*"
"""As an end of a link: every worker."""
_LISTED = 12
"""Names listed at most in the error for a wrong name: more would not be read."""
_INDEXED = re.compile(r"(.+)\[([0-9]{1,9})\]", re.DOTALL)
_PLACES = (WORKER, COMPONENT, TASK, NODE)
_TAKEN = {
    ActsOn.PROCESSES: (*_PLACES, *DAEMONS), ActsOn.NODES: (NODE, FORKING_PARENT), ActsOn.TASKS: _PLACES,
    ActsOn.LINKS: _PLACES,
}  # fmt: skip
"""The sorts of targets that a fault takes."""


class Place(NamedTuple):
    """The worker of a task."""

    topology: str
    component: str
    task: int
    worker: str = ""
    """Empty if it has not been placed yet."""


@dataclass(frozen=True, slots=True)
class View:
    """The cluster's possible targets at one moment."""

    nodes: Sequence[str] = ()
    workers: Sequence[str] = ()
    """ "node-1:6700": the slots that have a worker."""
    places: Sequence[Place] = ()
    """The tasks of all topologies; those of a component in the order of their numbers."""

    def component(self, name: str) -> list[Place]:
        """The tasks of a component, empty if there is none; with several topologies, it may say TOPOLOGY/COMPONENT."""
        tasks = [place for place in self.places if name in (place.component, f"{place.topology}/{place.component}")]
        topologies = dict.fromkeys(place.topology for place in tasks)
        if len(topologies) > 1:
            full = " or ".join(f"{topology}/{name}" for topology in topologies)
            raise UsageError(f"component {shown(name)} is in several topologies; write {full}")
        return tasks

    def known(self) -> str:
        """The names of workers, nodes and components, for messages."""
        components = list(dict.fromkeys(quoted(place.component) for place in self.places))
        names = {"components": components, "workers": self.workers, "nodes": self.nodes}
        return "; ".join(f"{what} are {listed(known)}" for what, known in names.items())


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """The links from one worker, node (all its workers, also later ones) or ANYBODY to another."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The things that a fault acts on, of the sort that `Kind.acts_on` names."""

    processes: tuple[Target, ...] = ()
    """Workers by their slots, daemons, and nodes if it acts on these."""
    tasks: tuple[Place, ...] = ()
    links: tuple[LinkEnds, ...] = ()


def check(fault: Fault) -> tuple[Kind, dict[str, Value]]:
    """A fault's row, and every parameter that has a value, given or by default. UsageError for the first mistake."""
    kind, given = CATALOGUE.get(fault.kind), fault.params
    if kind is None:
        near = difflib.get_close_matches(fault.kind, CATALOGUE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"fault {shown(fault.kind)} is unknown{hint} (squall faults lists all)")
    known = {parameter.name: parameter for parameter in kind.parameters}
    for name in given.keys() - known.keys():
        has = f"parameters are {', '.join(known)}" if known else "it has none"
        raise UsageError(f"{kind.name} has no parameter {shown(name)}; {has}")
    if kind.one_of and len(given.keys() & set(kind.one_of)) != 1:
        raise UsageError(f"{kind.name} needs exactly one of {', '.join(kind.one_of)}")
    params: dict[str, Value] = {}
    for name, parameter in known.items():
        value = parameter.read(given[name]) if name in given else parameter.default
        if value is not None:
            params[name] = value
        elif name not in kind.one_of:
            raise UsageError(f"{kind.name} needs {name}=..., {parameter.allowed}")
    try:
        re.compile(str(params.get("matches", "")))
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"matches is {shown(str(params['matches']))}: {error}") from None
    if fault.probability is not None and not kind.is_drawn:
        drawn = ", ".join(other.name for other in CATALOGUE.values() if other.is_drawn)
        raise UsageError(f"{kind.name} takes no probability; faults that do are {drawn}")
    if kind.lasts_secs is None and fault.for_secs is not None:
        raise UsageError(f"{kind.name} is over at once; it takes no `for`")
    if (fault.times or 1) > 1 and fault.every_secs is None:
        raise UsageError(f"{fault.times} times of {kind.name} need an `every`, such as every 5s")
    return kind, params


def resolve(kind: Kind, texts: Sequence[str], view: View, rng: random.Random | None = None) -> Resolved:
    """Find what these targets mean. Without a generator nothing is drawn, and it need not be there yet."""
    targets = [parse_target(text) for text in texts]
    finder = _Finder(kind, view, rng)
    if kind.acts_on is ActsOn.LINKS:
        things = Resolved(links=finder.links(targets))
    elif not targets:
        raise UsageError(f"{kind.name} needs a target: {kind.acts_on}")
    else:
        meant = [each for target in targets for each in finder.meant(target)]
        if kind.acts_on is ActsOn.TASKS:
            things = Resolved(tasks=tuple(dict.fromkeys(place for each in meant for place in finder.tasks(each))))
        else:
            things = Resolved(tuple(dict.fromkeys(process for each in meant for process in finder.processes(each))))
    if rng is not None and things == Resolved():
        raise ClusterError(f"{kind.name}: there is no process now for {', '.join(texts)} (not placed yet?)")
    return things


class _Finder:
    def __init__(self, kind: Kind, view: View, rng: random.Random | None) -> None:
        self._kind = kind
        self._view = view
        self._rng = rng

    def meant(self, target: Target | LinkTarget) -> list[Target]:
        """The worker, component, task, node or daemon that a target means; all that a random one may be, if none is
        drawn."""
        if isinstance(target, Target) and target.sort in (RANDOM, RANDOM_OF):
            workers = self._view.workers
            if target.name:
                workers = [worker for each in self.meant(Target(NAME, target.name)) for worker in self._workers(each)]
            candidates = sorted(set(workers))
            drawn = [self._rng.choice(candidates)] if self._rng is not None and candidates else candidates
            return [each for worker in drawn for each in self.meant(Target(WORKER, worker))]
        if isinstance(target, Target) and target.sort == NAME:
            target = self._named(target.name)
        if isinstance(target, LinkTarget) or target.sort not in _TAKEN[self._kind.acts_on]:
            raise UsageError(f"{self._kind.name} takes no {target}; it takes {self._kind.acts_on}")
        nodes = self._view.nodes
        if target.sort in (NODE, SUPERVISOR, FORKING_PARENT) and target.name not in nodes:
            raise UsageError(f"there is no node {shown(target.name)}; nodes are {listed(nodes)}")
        return [target]

    def _named(self, name: str) -> Target:
        """The worker, node, component or task of a name."""
        view = self._view
        if _INDEXED.fullmatch(name):
            return Target(TASK, name)
        sorts = {WORKER: name in view.workers, NODE: name in view.nodes, COMPONENT: bool(view.component(name))}
        named = [Target(sort, name) for sort, is_there in sorts.items() if is_there]
        if not named:
            raise UsageError(f"there is no worker, node or component {shown(name)}; {view.known()}")
        if len(named) > 1:
            what = " and a ".join(target.sort for target in named)
            raise UsageError(f"{shown(name)} is a {what}; write {' or '.join(map(str, named))}")
        return named[0]

    def processes(self, target: Target) -> list[Target]:
        """The workers of a target, or a daemon; or a node, if the fault acts on nodes."""
        if self._kind.acts_on is ActsOn.NODES:
            return [Target(NODE, target.name)]
        return [target] if target.sort in DAEMONS else [Target(WORKER, worker) for worker in self._workers(target)]

    def tasks(self, target: Target) -> list[Place]:
        """The tasks of a component that run, or all that run in a worker or on a node."""
        if target.sort in (NODE, WORKER):
            workers = self._workers(target)
            return [place for place in self._view.places if place.worker in workers]
        return [place for place in self._of_component(target) if place.worker]

    def links(self, targets: Sequence[Target | LinkTarget]) -> tuple[LinkEnds, ...]:
        """The links between all targets, or those that are written with an arrow."""
        ways = [
            (self._ends(target.sender), self._ends(target.receiver), target.arrow == BOTH_WAYS)
            for target in targets if isinstance(target, LinkTarget)
        ]  # fmt: skip
        plain = [self._ends(target) for target in targets if isinstance(target, Target)]
        if len(plain) == 1 or not targets:
            plain += [[ANYBODY]] * (2 - len(plain))
        ways += [(one, other, True) for one, other in combinations(plain, 2)]
        links = [
            LinkEnds(*pair)
            for ends, others, both in ways for one in ends for other in others
            for pair in ((one, other), (other, one))[: 1 + both]
        ]  # fmt: skip
        between = dict.fromkeys(link for link in links if link.sender != link.receiver or ":" not in link.sender)
        if links and not between:
            raise UsageError(f"{', '.join(map(str, targets))} is the way from a worker to itself, which is no link")
        return tuple(between)

    def _ends(self, target: Target) -> list[str]:
        """The ends of links that a target means. A node stays a node, so that later workers belong to it too."""
        return [
            end for each in self.meant(target) for end in ([each.name] if each.sort == NODE else self._workers(each))
        ]

    def _workers(self, target: Target) -> list[str]:
        """The workers that a definite target means."""
        workers = self._view.workers
        if target.sort == NODE:
            return [worker for worker in workers if worker.rpartition(":")[0] == target.name]
        if target.sort == WORKER and target.name in workers:
            return [target.name]
        return sorted({place.worker for place in self._of_component(target)} - {""})

    def _of_component(self, target: Target) -> list[Place]:
        """The tasks of a component, or one of them."""
        indexed = None if target.sort == COMPONENT else _INDEXED.fullmatch(target.name)
        name, number = (indexed[1], int(indexed[2])) if indexed else (target.name, None)
        tasks = self._view.component(name)
        if not tasks:
            raise UsageError(f"there is no {target.sort} {shown(name)}; {self._view.known()}")
        if number is None:
            return tasks
        if number >= len(tasks):
            raise UsageError(f"there is no task {target.name}; the last one is {name}[{len(tasks) - 1}]")
        return [tasks[number]]


def view_of(nodes: Iterable[str], assigned: Iterable[tuple[TopologyRecord, Assignment | None]]) -> View:
    """The view of a cluster. `nodes`: those that are connected, besides those with assignments. `assigned`: topologies
    and their assignments; None: not placed yet."""
    known = set(nodes)
    workers: list[str] = []
    places: list[Place] = []
    for record, assignment in assigned:
        if assignment is None:
            places += unplaced(record.name, {component.id: component.tasks for component in record.components})
            continue
        for slot, executors in zip(assignment.workers, assignment.executors, strict=True):
            known.add(slot.node)
            workers.append(str(slot))
            places += [
                Place(record.name, executor.component, task, str(slot))
                for executor in executors for task in executor.tasks
            ]  # fmt: skip
    places.sort(key=lambda place: place.task)
    return View(sorted(known), workers, [place for place in places if place.component != ACKER_COMPONENT])


def unplaced(topology: str, tasks: Mapping[str, int]) -> list[Place]:
    """The tasks of a topology's components that have no worker yet. `tasks`: how many each has."""
    return [Place(topology, component, index) for component, count in tasks.items() for index in range(count)]


def listed(names: Sequence[str]) -> str:
    """Names for messages, with a limit."""
    more = len(names) - _LISTED
    return ", ".join([*names[:_LISTED], *([f"{more} more"] if more > 0 else [])]) or "none"
