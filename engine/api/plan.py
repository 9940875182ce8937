"""The physical plan: the component and the worker of each task. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from squall.engine.api.stream import ACKER_COMPONENT


@dataclass(frozen=True)
class ExecutorPlan:
    """One executor: it runs tasks `first_task..last_task` of one component."""

    component: str
    first_task: int
    last_task: int

    @property
    def tasks(self) -> range:
        return range(self.first_task, self.last_task + 1)


@dataclass(frozen=True)
class Plan:
    """Executors per worker; a worker's index is its position here: 0, 1, 2 ..."""

    executors: Sequence[Sequence[ExecutorPlan]]
    worker_names: Sequence[str]
    """"node:port" of each worker."""

    @cached_property
    def _tasks_here(self) -> dict[tuple[str, int], list[int]]:
        """(component, worker) -> tasks."""
        here: dict[tuple[str, int], list[int]] = {}
        for worker, executors in enumerate(self.executors):
            for executor in executors:
                here.setdefault((executor.component, worker), []).extend(executor.tasks)
        return {place: sorted(tasks) for place, tasks in here.items()}

    @cached_property
    def component_tasks(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for (component, _), tasks in self._tasks_here.items():
            found.setdefault(component, []).extend(tasks)
        return {component: sorted(tasks) for component, tasks in found.items()}

    @cached_property
    def task_component(self) -> dict[int, str]:
        return {task: component for component, tasks in self.component_tasks.items() for task in tasks}

    @cached_property
    def task_worker(self) -> dict[int, int]:
        return {task: worker for (_, worker), tasks in self._tasks_here.items() for task in tasks}

    @cached_property
    def task_index(self) -> dict[int, int]:
        """Position of each task among those of its component."""
        return {task: index for tasks in self.component_tasks.values() for index, task in enumerate(tasks)}

    @property
    def n_workers(self) -> int:
        return len(self.executors)

    @property
    def ackers(self) -> list[int]:
        """Task ids of the ackers; a root names its acker by its position in this list."""
        return self.component_tasks.get(ACKER_COMPONENT, [])

    def tasks_of(self, component: str, worker: int | None = None) -> list[int]:
        """Task ids of a component, sorted; only those in `worker` if given. The same list each time: all senders to a
        component share it."""
        if worker is None:
            return self.component_tasks.get(component, [])
        return self._tasks_here.get((component, worker), [])
