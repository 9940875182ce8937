"""The physical plan: the component and the worker of each task. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    component_tasks: dict[str, list[int]] = field(init=False)
    task_component: dict[int, str] = field(init=False)
    task_worker: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        component_tasks: dict[str, list[int]] = {}
        task_component: dict[int, str] = {}
        task_worker: dict[int, int] = {}
        for worker, executors in enumerate(self.executors):
            for executor in executors:
                for task in executor.tasks:
                    component_tasks.setdefault(executor.component, []).append(task)
                    task_component[task] = executor.component
                    task_worker[task] = worker
        for tasks in component_tasks.values():
            tasks.sort()
        object.__setattr__(self, "component_tasks", component_tasks)
        object.__setattr__(self, "task_component", task_component)
        object.__setattr__(self, "task_worker", task_worker)

    @property
    def n_workers(self) -> int:
        return len(self.executors)

    @property
    def ackers(self) -> list[int]:
        """Task ids of the ackers; a root names its acker by its position in this list."""
        return self.component_tasks.get(ACKER_COMPONENT, [])

    def tasks_of(self, component: str, worker: int | None = None) -> list[int]:
        """Task ids of a component, sorted; only those in `worker` if given."""
        tasks = self.component_tasks.get(component, [])
        return tasks if worker is None else [task for task in tasks if self.task_worker[task] == worker]
