"""The names by which a fault point may mean a worker. Pure."""

from __future__ import annotations

from squall.engine.api.plan import Plan


def names_of(node: str, port: int, slot_index: int, plan: Plan) -> frozenset[str]:
    """The worker, its node, the components and the tasks that it runs ("count", "count[0]")."""
    names = {f"{node}:{port}", node}
    for component in {executor.component for executor in plan.executors[slot_index]}:
        here = set(plan.tasks_of(component, slot_index))
        names.add(component)
        names |= {f"{component}[{index}]" for index, task in enumerate(plan.tasks_of(component)) if task in here}
    return frozenset(names)
