"""Components whose behaviour a test writes down in place, and a worker core to run them in, in this process.

Guarantees: time stands still unless the test moves the clock; nothing is started that would have to be stopped, but the
threads of blocking bolts where a test asks for them.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    BoltDeclarer,
    Config,
    CustomGrouping,
    Failure,
    Spout,
    SpoutCollector,
    Stream,
    TaskHook,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import Outputs
from squall.engine.clock import ManualClock
from squall.engine.core.assemble import Assembler, close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import NoPeers, NoTransport
from squall.engine.core.turn import Turn
from squall.engine.core.worker_core import WorkerCore
from squall.engine.tracking.peers import Peers
from squall.testing.simulated import SimulatedCluster

MAX_STEPS = 10_000
DEADLINE_SECS = 30.0
TIMEOUT_SECS = 10
"""Of messages on the workers of `placed`."""


class Feeder(Spout):
    """Emits what the test fed to it and writes down what it is answered. `watched_by`: hooks that are told of it."""

    watched_by: Sequence[TaskHook] = ()

    def __init__(self, outputs: Outputs = ("value",)) -> None:
        self.outputs = outputs
        self.queue: deque[tuple[Any, Any, str]] = deque()
        self.acked: list[Any] = []
        self.failures: list[tuple[Any, Failure]] = []
        self.calls: list[str] = []
        self.exhausted = False

    def feed(self, *values: Any, id: Any = None, stream: str = "default") -> None:
        self.queue.append((values, id, stream))

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.conf, self.context, self.collector = conf, context, collector
        for hook in self.watched_by:
            context.add_hook(hook)
        self.calls.append("open")

    def next_tuple(self) -> None:
        self.calls.append("next_tuple")
        if self.queue:
            values, message_id, stream = self.queue.popleft()
            self.collector.emit(values, message_id=message_id, stream=stream)

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.failures.append((message_id, failure))

    def activate(self) -> None:
        self.calls.append("activate")

    def deactivate(self) -> None:
        self.calls.append("deactivate")

    def close(self) -> None:
        self.calls.append("close")

    @property
    def reasons(self) -> list[tuple[Any, str]]:
        return [(message_id, failure.reason) for message_id, failure in self.failures]


class Written:
    """A bolt whose `execute` is a function that the test writes, and may keep tuples in `kept`.

    `seen` holds the values that all its tasks got, `own` those of one task; `watched_by`: hooks that are told of it.
    """

    watched_by: Sequence[TaskHook] = ()

    def __init__(self, execute: Callable[..., Any], outputs: Outputs = (), blocking: bool = False) -> None:
        self._execute = execute
        self.outputs = outputs
        self.blocking = blocking
        self.seen: list[Any] = []
        self.kept: list[Tuple] = []

    def begin(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.conf, self.context = conf, context
        for hook in self.watched_by:
            context.add_hook(hook)
        self.own: list[Any] = []

    def execute(self, tup: Tuple, *collector: BasicCollector) -> None:
        self.seen.append(tup.values)
        self.own.append(tup.values)
        self._execute(self, tup, *collector)


class Does(Written, Bolt):
    """Its function is given the bolt and the tuple."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.begin(conf, context)
        self.collector = collector


class DoesBasic(Written, BasicBolt):
    """The same as a basic bolt: its function is given the collector, too."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.begin(conf, context)


def acks(bolt: Does, tup: Tuple) -> None:
    bolt.collector.ack(tup)


def keeps(bolt: Does, tup: Tuple) -> None:
    bolt.kept.append(tup)


def emits(copies: int) -> Callable[[Does, Tuple], None]:
    """Emit the tuple's values so many times, anchored, and ack it."""

    def execute(bolt: Does, tup: Tuple) -> None:
        for _ in range(copies):
            bolt.collector.emit(tup.values, anchors=tup)
        bolt.collector.ack(tup)

    return execute


def refuses(wrong: Callable[[Any], Any], basic: bool = True, **named: Any) -> Does | DoesBasic:
    """A bolt that acks the tuples at whose first value `wrong` raises nothing."""

    def plain(bolt: Does, tup: Tuple) -> None:
        wrong(tup[0])
        bolt.collector.ack(tup)

    return DoesBasic(lambda bolt, tup, collector: wrong(tup[0]), **named) if basic else Does(plain, **named)


def aggregates(count: int) -> Callable[[Does, Tuple], None]:
    """Keep tuples until there are `count`, then emit one that is anchored to all of them."""

    def execute(bolt: Does, tup: Tuple) -> None:
        bolt.kept.append(tup)
        if len(bolt.kept) == count:
            bolt.collector.emit((len(bolt.kept),), anchors=bolt.kept)
            for kept in bolt.kept:
                bolt.collector.ack(kept)
            bolt.kept.clear()

    return execute


def spread(topology: Topology, n_workers: int = 1, ackers: int = 1) -> Plan:
    """Executors dealt out to the workers in turn; task ids over components sorted by id, as a cluster gives them."""
    executors: list[list[ExecutorPlan]] = [[] for _ in range(n_workers)]
    task, turn = 1, 0
    for component, _, tasks, n_executors in sorted(topology.layout(ackers)):
        for index in range(n_executors):
            size = tasks // n_executors + (index < tasks % n_executors)
            executors[turn % n_workers].append(ExecutorPlan(component, task, task + size - 1))
            task += size
            turn += 1
    return Plan(executors, [f"node-1:{6700 + worker}" for worker in range(n_workers)])


def copy_component(spec: Any) -> Any:
    # Shallow: each task is an object of its own, yet the lists that the test reads are those it holds.
    return copy.copy(spec.component)


class CongestedBoard(NoPeers):
    """Says that another worker is congested while the test says so."""

    congested = False

    def others_congested(self) -> bool:
        return self.congested


def work(core: WorkerCore) -> None:
    """What a turn does inside of its worker: nothing is received or sent, nothing waits for that."""
    core.run_spouts()
    core.run_feeders()
    core.run_bolts()
    core.tracking.settle()
    for acks_for_other in core.tracking.take_to_tell():
        core.tracking.put_in_parcel(*acks_for_other)


class Rig:
    """One worker with everything in it."""

    def __init__(
        self, builder: TopologyBuilder, threads: bool = False, around: Mapping[str, Any] = MappingProxyType({}),
        plan: Plan | None = None, **settings: Any,
    ) -> None:
        """`around`: what its surroundings have that is not the default; `plan`: it is the first worker of others."""
        self.clock = ManualClock()
        self.woken = threading.Event()
        self.topology = builder.build()
        self.config = Config(**settings)
        self.plan = plan or spread(self.topology, ackers=1 if self.config.acker_count else 0)
        self.errors: list[tuple[str, int, str]] = []
        self.dead_letters: list[tuple[str, int, Any, Any, Failure]] = []
        peers = Peers(self.plan.n_workers, 0)
        for worker in range(self.plan.n_workers):
            peers.update(worker, 1, True)
        given: dict[str, Any] = {
            "report_error": lambda *error: self.errors.append(error),
            "dead_letter": lambda *letter: self.dead_letters.append(letter),
            "wake": self.woken.set, "copy": copy_component, "threads": threads, "timed": threads, "least_block": 4,
            **around,
        }
        surroundings = Surroundings("test", "node-1:6700", 1, self.clock.now_ns, None, **given)
        self.core: WorkerCore = Assembler(self.topology, self.plan, self.config, 0, peers, surroundings).build()
        self.core.set_active(True)
        self._board = CongestedBoard()
        self._turn = Turn(self.core, NoTransport(), self._board, self.config, self.clock.now_ns)

    def close(self) -> list[TaskCrashed]:
        return close_tasks(self.core)

    def step(self) -> bool:
        """One turn; whether anything was done."""
        return self._turn.run()

    def congest(self, congested: bool) -> None:
        """Another worker asks the spouts here to wait, or no longer does."""
        self._board.congested = congested
        self.core.congested = congested

    def settle(self) -> None:
        """Step until nothing happens any more."""
        for _ in range(MAX_STEPS):
            if not self.step():
                return
        raise AssertionError(f"still busy after {MAX_STEPS} steps")

    def settle_until(self, condition: Callable[[], bool]) -> None:
        """Step, and wait for threads to hand something over, until `condition` holds."""
        deadline = time.monotonic() + DEADLINE_SECS
        while True:
            self.woken.clear()
            self.settle()
            if condition():
                return
            assert self.woken.wait(deadline - time.monotonic()), f"not within {DEADLINE_SECS} s"

    def advance(self, secs: float) -> None:
        self.clock.advance(secs)
        self.settle()

    def user(self, component: str, index: int = 0) -> Any:
        """The user object of one task."""
        task = self.plan.tasks_of(component)[index]
        found = [user for _, at, user in self.core.users() if at == task]
        return found[0]

    @property
    def spout_task(self) -> SpoutTask:
        """That of the only task of a spout."""
        [task] = self.core.spout_tasks.values()
        return task

    @property
    def pending(self) -> int:
        return sum(len(task.pending) for task in self.core.spout_tasks.values())

    @property
    def tracked(self) -> int:
        """Trees that the ackers have not answered."""
        return sum(map(len, self.core.ackers.values()))


Grouped = Callable[[BoltDeclarer, str], object]
"""Has a bolt receive what a source emits."""
ONE_TARGET: dict[str, Grouped] = {
    "fields": lambda bolt, source: bolt.fields_grouping(source, "value"),
    "shuffle": BoltDeclarer.shuffle_grouping,
    "local or shuffle": BoltDeclarer.local_or_shuffle_grouping,
    "partial key": lambda bolt, source: bolt.partial_key_grouping(source, "value"),
    "global": BoltDeclarer.global_grouping,
    "none": BoltDeclarer.none_grouping,
}


class EverySecond(CustomGrouping):
    """To every other of the targets."""

    def prepare(self, context: Any, source: str, stream: str, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose_tasks(self, source_task: int, values: Any) -> list[int]:
        return list(self.targets[::2])


GROUPINGS: dict[str, Grouped] = {
    **ONE_TARGET,
    "all": BoltDeclarer.all_grouping,
    "custom": lambda bolt, source: bolt.custom_grouping(source, EverySecond()),
}


def chain(spout: Spout, *bolts: Bolt | BasicBolt) -> TopologyBuilder:
    """spout -> bolt-1 -> bolt-2 ... by shuffle grouping, one task each."""
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    source = "spout"
    for number, bolt in enumerate(bolts, 1):
        builder.set_bolt(f"bolt-{number}", bolt).shuffle_grouping(source)
        source = f"bolt-{number}"
    return builder


STREAMS: Outputs = {"default": ("value",), "pair": ("a", "b"), "to": Stream("value", direct=True)}


def streams_rig(spout: Feeder, middle: Any, subscribed: bool = True) -> Rig:
    """spout -> middle -> a sink on each of the middle's streams."""
    builder = chain(spout, middle)
    if subscribed:
        sinks = builder.set_bolt("sink", Does(acks), 2)
        sinks.shuffle_grouping("bolt-1").shuffle_grouping("bolt-1", stream="pair")
        sinks.direct_grouping("bolt-1", stream="to")
    return Rig(builder)


def placed(builder: TopologyBuilder, *workers: str) -> SimulatedCluster:
    """One task of each component, in the worker that names it: placed(builder, "__acker spout", "bolt-1"). Without a
    recorder, so that emits take their short cuts."""
    topology = builder.build()
    executors: list[list[ExecutorPlan]] = [[] for _ in workers]
    task = 1
    for component, _, tasks, _ in sorted(topology.layout(1)):
        at = [worker for worker, names in enumerate(workers) for name in names.split() if name == component]
        assert len(at) == tasks, component
        for worker in at:
            executors[worker].append(ExecutorPlan(component, task, task))
            task += 1
    plan = Plan(executors, [f"node-1:{6700 + worker}" for worker in range(len(workers))])
    config = Config(message_timeout_secs=TIMEOUT_SECS)
    return SimulatedCluster(topology, config, plan=plan, record=False, copy=copy_component)
