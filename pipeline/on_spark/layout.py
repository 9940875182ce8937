"""Lays a topology out for Spark: a worker core for each task, and the levels in which the workers run.

::

    level 0   spouts, each with an acker of its own
    level 1   bolts that read from level 0 only
    level n   bolts that read from level n - 1 and above

Guarantees: tasks have the numbers that they have on a cluster of ours with the same settings. Relies on a topology
without cycles (see `spark_plan`). Decides only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from squall.engine.api.config import Config
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import ACKER_COMPONENT
from squall.engine.api.topology import ComponentSpec, Topology

_NOT_APPLIED = frozenset({"max_spout_pending"})


@dataclass(frozen=True)
class Layout:
    """Who runs what, and when in a batch."""

    topology: Topology
    """Without the settings that do not apply."""
    config: Config
    plan: Plan
    levels: tuple[tuple[int, ...], ...]
    """The workers of each level; a worker's place in its level is its slot."""
    level_of: tuple[int, ...]
    slot_of: tuple[int, ...]

    def task_of(self, worker: int) -> int:
        """The task of a worker that is not an acker."""
        return next(
            one.first_task for one in self.plan.executors[worker] if one.component != ACKER_COMPONENT
        )

    def spec_of(self, worker: int) -> ComponentSpec:
        return self.topology[self.plan.task_component[self.task_of(worker)]]

    def readers(self, worker: int) -> list[int]:
        """The workers that may get tuples of this one."""
        component = self.spec_of(worker).id
        return sorted({
            self.plan.task_worker[task]
            for spec in self.topology.components.values() if any(one.source == component for one in spec.subscriptions)
            for task in self.plan.tasks_of(spec.id)
        })

    def feeders(self, worker: int) -> list[int]:
        """The workers of which this one may get tuples."""
        sources = {one.source for one in self.spec_of(worker).subscriptions}
        return sorted(self.plan.task_worker[task] for source in sources for task in self.plan.tasks_of(source))


def lay_out(topology: Topology, config: Config) -> Layout:
    """Lay a topology out."""
    config = config.replace(max_spout_pending=None)
    specs = {
        name: replace(spec, config={key: value for key, value in spec.config.items() if key not in _NOT_APPLIED})
        for name, spec in topology.components.items()
    }
    topology = Topology(specs)
    first, ackers = _first_tasks(topology, config)
    depth = _depths(topology)
    executors: list[list[ExecutorPlan]] = []
    levels: list[list[int]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in sorted(specs, key=lambda name: (depth[name], name)):
        for task in range(first[name], first[name] + specs[name].tasks):
            levels[depth[name]].append(len(executors))
            own = [ExecutorPlan(name, task, task)]
            if specs[name].is_spout and ackers:
                acker = ackers.pop(0)
                own.append(ExecutorPlan(ACKER_COMPONENT, acker, acker))
            executors.append(own)
    plan = Plan(executors, [_name(specs, own[0], first) for own in executors])
    level_of, slot_of = [0] * len(executors), [0] * len(executors)
    for level, workers in enumerate(levels):
        for slot, worker in enumerate(workers):
            level_of[worker], slot_of[worker] = level, slot
    return Layout(topology, config, plan, tuple(map(tuple, levels)), tuple(level_of), tuple(slot_of))


def _first_tasks(topology: Topology, config: Config) -> tuple[dict[str, int], list[int]]:
    """The first task of each component, as Nimbus numbers them, and the tasks of the ackers: there is one for each
    spout task here, so that those without a number on a cluster come after all others."""
    first, task = {}, 1
    native_ackers: list[int] = []
    for component, _, tasks, _ in sorted(topology.layout(config.acker_count)):
        if component == ACKER_COMPONENT:
            native_ackers = list(range(task, task + tasks))
        else:
            first[component] = task
        task += tasks
    wanted = sum(spec.tasks for spec in topology.spouts) if config.acker_count else 0
    return first, [*native_ackers, *range(task, task + wanted)][:wanted]


def _depths(topology: Topology) -> dict[str, int]:
    """The level of each component: one more than the deepest that it reads, 0 for a spout."""
    sources = {name: {one.source for one in spec.subscriptions} for name, spec in topology.components.items()}
    depth: dict[str, int] = {}
    for name in TopologicalSorter(sources).static_order():
        # A bolt that reads nothing is not a spout.
        depth[name] = 0 if topology[name].is_spout else 1 + max((depth[one] for one in sources[name]), default=0)
    return depth


def _name(specs: dict[str, ComponentSpec], own: ExecutorPlan, first: dict[str, int]) -> str:
    return f"spark:{own.component}[{own.first_task - first[own.component]}]"
