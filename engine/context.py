"""TopologyContext: what a task may know of where it runs."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.plan import Plan


@dataclass(frozen=True)
class TopologyContext:
    """Handed to `open` and `prepare`."""

    topology_name: str
    component_id: str
    task_id: int
    task_index: int
    """Position of this task among its component's: 0, 1, 2 ..."""
    worker: str
    """"node:port"."""
    attempt: int
    """Incarnation of the worker: 1, then one more each time it is replaced."""
    plan: Plan
    state_root: str | None = None
    now_ns: Callable[[], int] = time.monotonic_ns
    """The clock of everything in this topology; in simulation it moves only when it is told to."""
    random: random.Random = field(default_factory=random.Random, compare=False)
    """Chance for this task, repeatable where the topology has a `seed`."""

    def component_tasks(self, component: str) -> list[int]:
        """Ids of the tasks of a component, sorted; empty if there is no such component."""
        return list(self.plan.tasks_of(component))

    @property
    def state_dir(self) -> str:
        """A directory of this task's own that outlives its worker's death. Made on first use."""
        if self.state_root is None:
            raise RuntimeError(f"{self.component_id}[{self.task_id}] has no state directory in this mode")
        path = os.path.join(self.state_root, f"{self.component_id}-{self.task_index}")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path


