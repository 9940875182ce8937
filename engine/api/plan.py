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
    task_index: dict[int, int] = field(init=False)
    """Position of each task among those of its component."""
    _tasks_here: dict[tuple[str, int], list[int]] = field(init=False)
    """(component, worker) -> tasks."""

    def __post_init__(self) -> None:
        component_tasks: dict[str, list[int]] = {}
        task_component: dict[int, str] = {}
        task_worker: dict[int, int] = {}
        task_index: dict[int, int] = {}
        here: dict[tuple[str, int], list[int]] = {}
        for worker, executors in enumerate(self.executors):
            for executor in executors:
                for task in executor.tasks:
                    component_tasks.setdefault(executor.component, []).append(task)
                    task_component[task] = executor.component
                    task_worker[task] = worker
                    here.setdefault((executor.component, worker), []).append(task)
        for tasks in (*component_tasks.values(), *here.values()):
            tasks.sort()
        for tasks in component_tasks.values():
            task_index.update((task, index) for index, task in enumerate(tasks))
        object.__setattr__(self, "component_tasks", component_tasks)
        object.__setattr__(self, "task_component", task_component)
        object.__setattr__(self, "task_worker", task_worker)
        object.__setattr__(self, "task_index", task_index)
        object.__setattr__(self, "_tasks_here", here)

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
