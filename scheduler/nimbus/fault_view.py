"""Makes the view of the cluster in which the targets of faults are looked up. Pure. Thread: Nimbus's loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from squall.engine.api.stream import ACKER_COMPONENT
from squall.scheduler.common.messages import Assignment, TopologyRecord
from squall.scheduler.faults.resolution import Place, View


def view_of(
    nodes: Sequence[str], assigned: Iterable[tuple[TopologyRecord, Assignment | None]], *, has_keeper: bool
) -> View:
    """`assigned`: topologies and their assignments; None: not placed yet."""
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
    return View(tuple(nodes), tuple(workers), topologies, has_keeper)


def _placed(topology: str, component: str, assignment: Assignment) -> tuple[Place, ...]:
    found = [
        Place(topology, component, task, str(slot))
        for slot, executors in zip(assignment.workers, assignment.executors, strict=True)
        for executor in executors
        if executor.component == component
        for task in range(executor.first_task, executor.last_task + 1)
    ]
    return tuple(sorted(found, key=lambda place: place.task))
