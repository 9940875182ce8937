"""Several worker cores in this process, joined by queues of parcels, on a shared board: any interleaving, any death.

Guarantees: what happens depends on the given random generator alone (but for tuple ids). Parcels of one sender to one
receiver arrive in order, once, or not at all when either of the two incarnations is dead, as the links have it. A
worker reads the board after it took in frames, so that it knows at least what their senders knew.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from typing import Any

from engine.assemble import Assembler, Surroundings
from engine.builder import TopologyBuilder
from engine.clock import ManualClock
from engine.config import Config
from engine.core import WorkerCore
from engine.failure import Failure
from engine.parcel import Parcel
from engine.peers import Peers
from engine.plan import ExecutorPlan, Plan
from engine.topology import Topology
from tests.unit.rig import MAX_STEPS, copy_component


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


class Node:
    """One incarnation of a worker."""

    def __init__(self, net: Net, me: int, incarnation: int) -> None:
        self.net = net
        self.me = me
        self.incarnation = incarnation
        self.seen: list[tuple[int, bool]] = [(0, False)] * net.n_workers
        self.fence = [0] * net.n_workers
        self.peers = Peers(net.n_workers, me)
        self.peers.update(me, incarnation, True)
        around = Surroundings(
            "net", net.plan.worker_names[me], incarnation, net.clock.now_ns, None, net.report, net.dead_letter,
            copy=copy_component, deterministic=True,
        )
        self.core: WorkerCore = Assembler(net.topology, net.plan, net.config, me, self.peers, around).build()
        self.follow()
        self.core.set_active(True)

    def follow(self) -> None:
        for slot, now in enumerate(self.net.board):
            if slot != self.me and now != self.seen[slot]:
                self.seen[slot] = now
                incarnation, alive = now
                self.fence[slot] = incarnation if alive else incarnation + 1
                self.core.peer_changed(slot, incarnation, alive)

    def receive(self, everything: bool = False) -> None:
        sources = list(range(self.net.n_workers))
        self.net.rng.shuffle(sources)
        for source in sources:
            link = self.net.links[source, self.me]
            for _ in range(len(link) if everything else self.net.rng.randrange(len(link) + 1)):
                sender, receiver, frame = link.popleft()
                if receiver == self.incarnation and sender >= self.fence[source]:
                    parcel: Parcel = pickle.loads(frame)
                    self.core.receive(parcel, lambda: None)

    def send(self, everything: bool = False) -> None:
        for slot in list(self.core.close_parcels()):
            # Some links have no credit at the moment, and one that is not there cannot be sent on.
            if self.peers.is_alive(slot) and (everything or self.net.rng.random() < 0.8):
                parcel = self.core.take_parcel(slot)
                if parcel:
                    frame = pickle.dumps(parcel, 5)
                    self.net.links[self.me, slot].append((self.incarnation, self.peers.incarnation(slot), frame))

    def turn(self) -> None:
        # The board after the frames: who sent a frame may have acted upon what the board said by then.
        self.receive()
        self.follow()
        self.core.step()
        if self.net.rng.random() < 0.7:
            self.send()


class Net:
    """The workers of one topology."""

    def __init__(self, topology: Topology, plan: Plan, config: Config, rng: random.Random) -> None:
        self.topology = topology
        self.plan = plan
        self.config = config
        self.rng = rng
        self.clock = ManualClock()
        self.n_workers = plan.n_workers
        self.errors: list[tuple[str, int, str]] = []
        self.dead_letters: list[tuple[str, int, Any, Any, Failure]] = []
        self.deaths = 0
        self.board: list[tuple[int, bool]] = [(1, True)] * self.n_workers
        self.links: dict[tuple[int, int], deque[tuple[int, int, bytes]]] = {
            (source, target): deque() for source in range(self.n_workers) for target in range(self.n_workers)
        }
        self.nodes: list[Node | None] = [None] * self.n_workers
        for me in range(self.n_workers):
            self.nodes[me] = Node(self, me, 1)

    def report(self, component: str, task: int, text: str) -> None:
        self.errors.append((component, task, text))

    def dead_letter(self, component: str, task: int, message_id: Any, values: Any, failure: Failure) -> None:
        self.dead_letters.append((component, task, message_id, values, failure))

    @property
    def cores(self) -> list[WorkerCore]:
        return [node.core for node in self.nodes if node is not None]

    def turn(self) -> None:
        """One turn of a worker that happens to be scheduled."""
        self.clock.advance(self.rng.random() * 0.001)
        node = self.rng.choice(self.nodes)
        if node is not None:
            node.turn()

    def settle(self) -> None:
        """Everybody's turn, everything sent and received, until nothing happens any more."""
        for _ in range(MAX_STEPS):
            worked = False
            for node in self.nodes:
                if node is not None:
                    node.receive(everything=True)
                    node.follow()
                    worked |= node.core.step()
                    node.send(everything=True)
            if not worked and not any(self.links.values()):
                return
        raise AssertionError(f"still busy after {MAX_STEPS} rounds")

    def core(self, slot: int) -> WorkerCore:
        node = self.nodes[slot]
        assert node is not None
        return node.core

    def user(self, component: str, index: int = 0) -> Any:
        """The user object of one task."""
        task = self.plan.tasks_of(component)[index]
        return next(user for _, at, user in self.core(self.plan.task_worker[task]).users() if at == task)

    def kill(self, slot: int) -> None:
        """Without warning: what was under way from it arrives in part, what was under way to it does not."""
        incarnation, _ = self.board[slot]
        self.board[slot] = (incarnation, False)
        self.nodes[slot] = None
        self.deaths += 1
        for target in range(self.n_workers):
            link = self.links[slot, target]
            for _ in range(self.rng.randrange(len(link) + 1)):
                link.pop()

    def restart(self, slot: int, stillborn: float = 0.0) -> None:
        """Start the next incarnation, which with some probability does not even come up."""
        incarnation = self.board[slot][0] + 1
        self.board[slot] = (incarnation, True)
        if self.rng.random() < stillborn:
            self.kill(slot)
        else:
            self.nodes[slot] = Node(self, slot, incarnation)

    def chaos(self) -> None:
        """Kill a living worker or bring back a dead one."""
        slot = self.rng.randrange(self.n_workers)
        if self.nodes[slot] is None:
            self.restart(slot, stillborn=0.2)
        else:
            self.kill(slot)

    def repair(self) -> None:
        for slot in range(self.n_workers):
            if self.nodes[slot] is None:
                self.restart(slot)

    @property
    def quiet(self) -> bool:
        return all(core.quiet for core in self.cores) and not any(self.links.values())


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
    return sum(len(acker) for core in net.cores for acker in core.ackers.values())


def pending(net: Net) -> int:
    return sum(len(task.pending) for core in net.cores for _, task in core.spout_tasks.values())


def counted(net: Net, component: str) -> Any:
    task = net.plan.tasks_of(component)[0]
    core = net.core(net.plan.task_worker[task])
    core.refresh_gauges()
    return core.stats[task]
