"""TopologyContext: tells a task where it runs, and gives it metrics, hooks and a directory.

Guarantees: a task's state directory is the same for all its incarnations, and no other task's.

Relies on: a file system below `state_root` that outlives the worker. Thread: the task's.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from squall.engine.api.hooks import Hooks, TaskHook
from squall.engine.api.plan import Plan
from squall.engine.api.user_metrics import Counter, Histogram, UserMetrics
from squall.engine.clock import wall_ns
from squall.engine.foreign.stable_hash import stable_hash


@dataclass(frozen=True)
class TopologyContext:
    """Tells a task about its topology and place; the argument of `open` and `prepare`."""

    topology_name: str
    """Name of the topology, as it was submitted."""
    component_id: str
    """Name of the component, as given to `set_spout` or `set_bolt`."""
    task_id: int
    """Number of the task, from 1, unique in the topology."""
    task_index: int
    """Position of this task among its component's tasks: 0, 1, 2 ..."""
    worker: str
    """"node:port"."""
    attempt: int
    """Incarnation of the worker: 1, then one more each time it is replaced."""
    plan: Plan
    """The workers, executors and tasks of the topology."""
    state_root: str | None = None
    """The directory above those of the tasks' states; use `state_dir`. None: there is none in this mode."""
    now_ns: Callable[[], int] = time.monotonic_ns
    """The topology's clock, in nanoseconds; in simulation it moves only when the test moves it."""
    random: random.Random = field(default_factory=random.Random, compare=False)
    """Random numbers for this task; repeatable if the topology has a `seed`."""
    wall_ns: Callable[[], int] = field(default=wall_ns, repr=False, compare=False, kw_only=True)
    """The wall clock beside `now_ns`, in nanoseconds since 1970; it may jump."""
    metrics: UserMetrics = field(default_factory=UserMetrics, repr=False, compare=False, kw_only=True)
    """The metrics behind `counter`, `gauge` and `histogram`."""
    input_fields: Mapping[str, Mapping[str, Sequence[str]]] = field(
        default_factory=dict, repr=False, compare=False, kw_only=True
    )
    """Field names of what a bolt reads, by component and stream."""
    text_hash: Callable[[str], int] = field(default=stable_hash, repr=False, compare=False, kw_only=True)
    """By which a fields grouping divides text here."""
    warn: Callable[[str], object] = field(default=lambda text: None, repr=False, compare=False, kw_only=True)
    """Tells the operator of a problem that can go on, once per component."""

    @cached_property
    def hooks(self) -> Hooks:
        """The hooks behind `add_hook`."""
        return Hooks(self.component_id, self.task_id, self.now_ns)

    def component_tasks(self, component: str) -> list[int]:
        """Return the sorted task ids of a component; an empty list if there is no such component."""
        return list(self.plan.tasks_of(component))

    @property
    def state_dir(self) -> str:
        """Path of this task's own directory, which outlives its workers. Created on first use."""
        return self._state(str(self.task_index))

    @property
    def shared_state_dir(self) -> str:
        """Path of a directory that all tasks of this component share, and that outlives them. Created on first use."""
        return self._state("shared")

    def _state(self, whose: str) -> str:
        if self.state_root is None:
            raise RuntimeError(f"{self.component_id}[{self.task_id}] has no state directory in this mode")
        path = self.directory_of(self.component_id, whose)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def directory_of(self, component: str, whose: str) -> str:
        """Path of the directory of a task, by its index, or of the one that is "shared"; perhaps not there yet."""
        return os.path.join(self.state_root or "", f"{component}-{whose}")

    def counter(self, name: str) -> Counter:
        """Return this task's counter of that name, for `inc()`; the report shows the sum over tasks."""
        return self.metrics.counter(self.component_id, self.task_id, name)

    def gauge(self, name: str, fn: Callable[[], float]) -> None:
        """Show the number that `fn()` returns, per task. It is called about once a second, by the worker's loop."""
        self.metrics.gauge(self.component_id, self.task_id, name, fn)

    def histogram(self, name: str) -> Histogram:
        """Return this task's histogram, for `update(value)`; the report shows count, mean, p50, p90, p99 and max over
        all tasks."""
        return self.metrics.histogram(self.component_id, self.task_id, name)

    def add_hook(self, hook: TaskHook) -> None:
        """Have a `TaskHook` called at this task's emits, executes, acks and fails. Only in `open` or `prepare`."""
        self.hooks.add(hook)
