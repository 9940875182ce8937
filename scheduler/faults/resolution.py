"""Resolves targets, as users write them, against a view of the cluster.

Guarantees: the same targets, view and generator give the same result. An unknown target is a UsageError that lists the
known ones; a known target that is not there now (a topology without workers) is a ClusterError.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.faults.fault import shown
from squall.scheduler.faults.kind import ActsOn, Carrier, Kind
from squall.scheduler.faults.target import ALL, DAEMONS, OF_NODES, RANDOM, AnyTarget, LinkTarget, Sort, Target
from squall.scheduler.faults.view import Place, View, listed

_T = TypeVar("_T")

ANYBODY = "*"
"""As an end of a link: every worker."""


@dataclass(frozen=True, slots=True)
class Process:
    """A worker or a daemon."""

    sort: Sort
    name: str = ""
    """For a worker its slot, for a supervisor or forking parent its node; empty for Nimbus."""

    def __str__(self) -> str:
        return self.name if self.sort is Sort.WORKER else f"{self.sort} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class LinkEnds:
    """The links from one worker, node (all its workers, also later ones) or ANYBODY to another."""

    sender: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The things that a fault acts on, of the sort that `Kind.acts_on` names."""

    processes: tuple[Process, ...] = ()
    tasks: tuple[Place, ...] = ()
    links: tuple[LinkEnds, ...] = ()


def resolve(kind: Kind, targets: Sequence[AnyTarget], view: View, rng: random.Random) -> Resolved:
    """Resolve targets. UsageError names all unknown ones; ClusterError if none is there at the moment."""
    found = locate(kind, draw_all(targets, view, rng), view)
    if kind.acts_on is not ActsOn.CLUSTER and not (found.processes or found.tasks or found.links):
        raise ClusterError(f"{kind.name}: there is no process now for {', '.join(map(str, targets))} (not placed yet?)")
    return found


def locate(kind: Kind, targets: Sequence[AnyTarget], view: View) -> Resolved:
    """Like `resolve`, but without drawing, and with an empty result if nothing has been placed yet.

    A target that is drawn gives all its candidates.
    """
    if bool(targets) == (kind.acts_on is ActsOn.CLUSTER) and kind.acts_on is not ActsOn.LINKS:
        raise UsageError(f"{kind.name} {'takes no target' if targets else f'needs a target: {kind.targets}'}")
    if not view.has_keeper:
        _refuse_for_want_of_a_keeper(kind, targets)
    match kind.acts_on:
        case ActsOn.CLUSTER:
            return Resolved()
        case ActsOn.LINKS:
            return Resolved(links=_links(targets, view))
        case ActsOn.TASKS:
            return Resolved(tasks=_each(kind, targets, lambda target: _places(target, view)))
        case ActsOn.FORKING_PARENTS:
            return Resolved(processes=_each(kind, targets, lambda target: _forking_parents(kind, target, view)))
        case _:
            return Resolved(processes=_each(kind, targets, lambda target: _processes(kind, target, view)))


def _refuse_for_want_of_a_keeper(kind: Kind, targets: Sequence[AnyTarget]) -> None:
    """UsageError for what ends a daemon that only a keeper starts again."""
    who = "; clusters of `squall up`, `squall run` and LocalCluster have one"
    sorts = {target.sort for target in targets if isinstance(target, Target)}
    if kind.carrier is Carrier.NIMBUS or (kind.name == "kill" and sorts & {Sort.NIMBUS, Sort.SUPERVISOR}):
        raise UsageError(f"{kind.name} ends a daemon, which only a keeper starts again, and there is no keeper{who}")


def draw_all(targets: Iterable[AnyTarget], view: View, rng: random.Random) -> list[AnyTarget]:
    """Draw the random targets."""
    return [
        replace(target, sender=_draw(target.sender, view, rng), receiver=_draw(target.receiver, view, rng))
        if isinstance(target, LinkTarget)
        else _draw(target, view, rng)
        for target in targets
    ]


def _draw(target: Target, view: View, rng: random.Random) -> Target:
    if target.which != RANDOM:
        return target
    candidates = _candidates(target, view)
    if not candidates:
        raise ClusterError(f"there is no {target.sort} to draw for {str(target)!r}")
    return rng.choice(candidates)


def _candidates(target: Target, view: View) -> list[Target]:
    """The targets that "random X" or "all Xs" may mean."""
    if target.sort in OF_NODES:
        if not target.name:
            return [Target(target.sort, node) for node in view.nodes]
        view.check_node(target.name)
        return [Target(target.sort, target.name)]
    scope = Target(Sort.NAME if target.index is None else Sort.TASK, target.name, target.index)
    places = _places(scope, view) if target.name else list(view.places())
    match target.sort:
        case Sort.WORKER if not target.name:
            return [Target(Sort.WORKER, worker) for worker in view.workers]
        case Sort.WORKER:
            return [Target(Sort.WORKER, worker) for worker in sorted({place.worker for place in places} - {""})]
        case Sort.COMPONENT:
            return [Target(Sort.COMPONENT, name) for name in dict.fromkeys(_full_name(place, view) for place in places)]
        case _:
            return [Target(Sort.TASK, _full_name(place, view), _index(place, view)) for place in places]


def _full_name(place: Place, view: View) -> str:
    return f"{place.topology}/{place.component}" if len(view.topologies) > 1 else place.component


def _index(place: Place, view: View) -> int:
    return view.topologies[place.topology][place.component].index(place)


def _each(kind: Kind, targets: Iterable[AnyTarget], find: Callable[[Target], Iterable[_T]]) -> tuple[_T, ...]:
    """The things that all targets name, each once; one error for all mistakes."""
    found: dict[_T, None] = {}
    mistakes: list[str] = []
    for target in targets:
        try:
            if isinstance(target, LinkTarget):
                raise UsageError(f"{kind.name} takes no link such as {str(target)!r}; it takes {kind.targets}")
            found.update(dict.fromkeys(find(target)))
        except UsageError as error:
            mistakes.append(str(error))
    if mistakes:
        raise UsageError("; ".join(dict.fromkeys(mistakes)))
    return tuple(found)


def _meant(target: Target, view: View) -> Target:
    """The worker, node or component that a bare name means."""
    if target.sort is not Sort.NAME:
        return target
    name = target.name
    sorts = [sort for sort, names in ((Sort.WORKER, view.workers), (Sort.NODE, view.nodes)) if name in names]
    if view.find_component(name) is not None:
        sorts.append(Sort.COMPONENT)
    if not sorts:
        who = f"components are {listed(view.components())}; workers are {listed(view.workers)}"
        raise UsageError(f"there is no worker, node or component {shown(name)}; {who}; nodes are {listed(view.nodes)}")
    if len(sorts) > 1:
        forms = " or ".join(str(Target(sort, name)) for sort in sorts)
        raise UsageError(f"{shown(name)} is a {' and a '.join(sorts)}; write {forms}")
    return Target(sorts[0], name)


def _all_of(target: Target, view: View, find: Callable[[Target, View], list[_T]]) -> list[_T]:
    return [thing for candidate in _candidates(target, view) for thing in find(candidate, view)]


def _places(target: Target, view: View) -> list[Place]:
    """The tasks that a target means."""
    if target.which in (ALL, RANDOM):
        return _all_of(target, view, _places)
    target = _meant(target, view)
    match target.sort:
        case Sort.COMPONENT:
            return list(view.component(target.name))
        case Sort.TASK if target.index is not None:
            return [view.task(target.name, target.index)]
        case Sort.NODE | Sort.WORKER:
            workers = _workers(target, view)
            return [place for place in view.places() if place.worker in workers]
        case _:
            raise UsageError(f"{target} runs no tasks")


def _workers(target: Target, view: View) -> list[str]:
    """The names of the workers that a target means."""
    if target.which in (ALL, RANDOM):
        return _all_of(target, view, _workers)
    target = _meant(target, view)
    match target.sort:
        case Sort.WORKER if target.index is None and target.name in view.workers:
            return [target.name]
        case Sort.NODE:
            view.check_node(target.name)
            return list(view.workers_of_node(target.name))
        case Sort.WORKER | Sort.COMPONENT | Sort.TASK:
            places = _tasks_of_worker(target, view)
            return sorted({place.worker for place in places} - {""})
        case _:
            raise UsageError(f"{target} is no worker")


def _tasks_of_worker(target: Target, view: View) -> tuple[Place, ...]:
    """The tasks by which a target names workers."""
    if target.index is not None:
        return (view.task(target.name, target.index),)
    if target.sort is Sort.COMPONENT:
        return view.component(target.name)
    places = view.find_component(target.name)
    if places is None:
        who = f"workers are {listed(view.workers)}, and those of components: {listed(view.components())}"
        raise UsageError(f"there is no worker {shown(target.name)}; {who}")
    return places


def _processes(kind: Kind, target: Target, view: View) -> list[Process]:
    if target.sort not in DAEMONS:
        return [Process(Sort.WORKER, worker) for worker in _workers(target, view)]
    if kind.acts_on is not ActsOn.PROCESSES:
        raise UsageError(f"{kind.name} takes no {target}; it takes {kind.targets}")
    if target.which:
        return [Process(candidate.sort, candidate.name) for candidate in _candidates(target, view)]
    if target.sort is not Sort.NIMBUS:
        view.check_node(target.name)
    return [Process(target.sort, target.name)]


def _forking_parents(kind: Kind, target: Target, view: View) -> list[Process]:
    if target.which and target.sort in (Sort.NODE, Sort.FORKING_PARENT):
        return [Process(Sort.FORKING_PARENT, candidate.name) for candidate in _candidates(target, view)]
    target = _meant(target, view)
    if target.sort not in (Sort.NODE, Sort.FORKING_PARENT):
        raise UsageError(f"{kind.name} takes no {target}; it takes {kind.targets}")
    view.check_node(target.name)
    return [Process(Sort.FORKING_PARENT, target.name)]


def _links(targets: Sequence[AnyTarget], view: View) -> tuple[LinkEnds, ...]:
    if not targets:
        return (LinkEnds(ANYBODY, ANYBODY),)
    ways: list[tuple[list[str], list[str]]] = []
    mistakes: list[str] = []

    def ends_of(target: Target) -> list[str]:
        try:
            return _ends(target, view)
        except UsageError as error:
            mistakes.append(str(error))
            return []

    plain = []
    for target in targets:
        if isinstance(target, LinkTarget):
            sender, receiver = ends_of(target.sender), ends_of(target.receiver)
            ways += [(sender, receiver), (receiver, sender)] if target.both else [(sender, receiver)]
        else:
            plain.append(ends_of(target))
    between = list(combinations(plain, 2)) if len(plain) > 1 else [(only, [ANYBODY]) for only in plain]
    for one, other in between:
        ways += [(one, other), (other, one)]
    if mistakes:
        raise UsageError("; ".join(dict.fromkeys(mistakes)))
    links = [LinkEnds(sender, receiver) for senders, receivers in ways for sender in senders for receiver in receivers]
    found = tuple(dict.fromkeys(link for link in links if not _is_to_itself(link)))
    if links and not found:
        raise UsageError(f"{', '.join(map(str, targets))} is the way from a worker to itself, which is no link")
    return found


def _is_to_itself(link: LinkEnds) -> bool:
    return link.sender == link.receiver and ":" in link.sender


def _ends(target: Target, view: View) -> list[str]:
    """The ends of links that a target means. A node stays a node, so that later workers belong to it too."""
    target = _meant(target, view)
    if target.sort in (Sort.NIMBUS, Sort.SUPERVISOR, Sort.FORKING_PARENT):
        raise UsageError(f"{target} has no links; links are between workers")
    if target.which == ALL:
        return [ANYBODY]
    if target.sort is Sort.NODE:
        return [candidate.name for candidate in _candidates(target, view)]
    return _workers(target, view)
