"""A simulated cluster whose workers take turns as chance has it: any interleaving, any death.

Guarantees: what happens depends on the given random generator alone (but for tuple ids). Parcels of one sender to one
receiver arrive in order, once, or not at all when either of the two incarnations is dead, as the links have it. A
worker reads the board after it took in frames, so that it knows at least what their senders knew.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from squall.engine.api.builder import TopologyBuilder
from squall.engine.api.config import Config
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.topology import Topology
from squall.testing.simulated import SimulatedCluster
from squall.testing.simulated_worker import Frame, Wiring
from tests.unit.rig import copy_component


def scatter(topology: Topology, rng: random.Random, n_workers: int, ackers: int) -> Plan:
    """Executors on workers as chance has it; a worker may get none."""
    executors: list[list[ExecutorPlan]] = [[] for _ in range(n_workers)]
    task = 1
    for component, _, tasks, n_executors in sorted(topology.layout(ackers)):
        for index in range(n_executors):
            size = tasks // n_executors + (index < tasks % n_executors)
            rng.choice(executors).append(ExecutorPlan(component, task, task + size - 1))
            task += size
    return Plan(executors, [f"node-1:{6700 + worker}" for worker in range(n_workers)])


TIMEOUT_SECS = 10


class ChancyWiring(Wiring):
    """While it has a generator, what is under way arrives in part, and some links have no credit at the moment."""

    rng: random.Random | None = None

    def arriving(self, target: int) -> Iterable[Frame]:
        if self.rng is None:
            yield from super().arriving(target)
            return
        sources = list(range(self.plan.n_workers))
        self.rng.shuffle(sources)
        for source in sources:
            link = self.links[source, target]
            for _ in range(self.rng.randrange(len(link) + 1)):
                yield link.popleft()

    def has_credit(self, source: int, target: int) -> bool:
        return self.rng is None or self.rng.random() < 0.6


class Net(SimulatedCluster):
    """The workers of one topology. Without a recorder, so that emits take their short cuts."""

    def __init__(self, topology: Topology, plan: Plan, config: Config, rng: random.Random) -> None:
        self.rng = rng
        self.deaths = 0
        super().__init__(topology, config, plan=plan, record=False, copy=copy_component, wiring=self._wire)

    def _wire(self, *shared: Any) -> ChancyWiring:
        self.wiring = ChancyWiring(*shared)
        return self.wiring

    @property
    def board(self) -> list[tuple[int, bool]]:
        """(incarnation, alive) of each worker, for tests that write what a supervisor would."""
        return self.wiring.board

    def turn(self) -> None:
        """One turn of a worker that happens to be scheduled."""
        self.clock.advance(self.rng.random() * 0.001)
        worker = self.rng.choice(self.workers)
        if worker is None:
            return
        self.wiring.rng = self.rng
        worker.turn()
        self.wiring.rng = None

    def let(self, index: int) -> None:
        """One turn of this worker, while all others sleep."""
        worker = self.workers[index]
        assert worker is not None
        worker.turn()

    def kill(self, worker: int | str) -> None:
        """As always, but what was under way from it arrives in part only."""
        super().kill(worker)
        self.deaths += 1
        source = worker if isinstance(worker, int) else list(self.plan.worker_names).index(worker)
        for target in range(self.plan.n_workers):
            link = self.wiring.links[source, target]
            for _ in range(self.rng.randrange(len(link) + 1)):
                link.pop()

    def chaos(self) -> None:
        """Kill a living worker or bring back a dead one."""
        worker = self.rng.randrange(self.plan.n_workers)
        if self.workers[worker] is not None:
            self.kill(worker)
        else:
            self.restart(worker)
            if self.rng.random() < 0.2:
                self.kill(worker)  # stillborn

    def repair(self) -> None:
        for worker in range(self.plan.n_workers):
            if self.workers[worker] is None:
                self.restart(worker)


def placed(builder: TopologyBuilder, *workers: str, ackers: int = 1, **settings: Any) -> Net:
    """One task of each component, in the worker that names it: placed(builder, "__acker spout", "bolt-1")."""
    topology = builder.build()
    executors: list[list[ExecutorPlan]] = [[] for _ in workers]
    task = 1
    for component, _, tasks, _ in sorted(topology.layout(ackers)):
        at = [worker for worker, names in enumerate(workers) for name in names.split() if name == component]
        assert len(at) == tasks, component
        for worker in at:
            executors[worker].append(ExecutorPlan(component, task, task))
            task += 1
    plan = Plan(executors, [f"node-1:{6700 + worker}" for worker in range(len(workers))])
    return Net(topology, plan, Config(message_timeout_secs=TIMEOUT_SECS, **settings), random.Random(1))


def tracked(net: Net) -> int:
    return net.tracked


def pending(net: Net) -> int:
    return net.pending


def counted(net: Net, component: str) -> Any:
    task = net.plan.tasks_of(component)[0]
    core = net.core(net.plan.task_worker[task])
    core.refresh_gauges()
    return core.stats[task]
