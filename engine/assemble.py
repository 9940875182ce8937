"""Builds the executors of one worker from a topology and its plan, and opens them.

Guarantees: every task has a user object of its own (copied through pickle, in `--local` mode too, so that both modes
treat shared state alike); `open` and `prepare` run once per task, in task order, before any tuple flows.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from engine.attempts import Attempts, Journal, Limits
from engine.blocking import BlockingExecutor
from engine.collectors import BasicCollector, BoltCollector, SpoutCollector
from engine.component import BasicBolt, Bolt, Spout
from engine.config import Config
from engine.context import TopologyContext
from engine.core import WorkerCore
from engine.emitter import Emitter
from engine.executor import AtHand, BoltExecutor, BoltTask, TaskCrashed, describe
from engine.failure import Failure
from engine.hooks import Hooks, watch_bolt, watch_spout
from engine.ids import root_ids
from engine.lane import Lane, OwnTurn, TrialTurn
from engine.metrics import TaskStats
from engine.outbox import Outbox
from engine.peers import Peers
from engine.pending import PendingTable
from engine.plan import ExecutorPlan, Plan
from engine.spout_executor import TURN_NS, SpoutExecutor, SpoutTask
from engine.stream import ACKER_COMPONENT
from engine.topology import ComponentSpec, Topology
from engine.user_metrics import UserMetrics

T = TypeVar("T")


@dataclass
class Surroundings:
    """What a worker core gets from whoever runs it."""

    topology_name: str
    worker: str
    """"node:port"."""
    attempt: int
    now_ns: Callable[[], int]
    state_root: str | None
    report_error: Callable[[str, int, str], None]
    """(component, task, text): an error that does not end the worker."""
    dead_letter: Callable[[str, int, Any, Any, Failure], None]
    """(component, task, message id, values, last failure)."""
    wake: Callable[[], None] = lambda: None
    """Wakes the loop from another thread."""
    copy: Callable[[ComponentSpec], Any] = lambda spec: spec.component
    """A fresh copy of a component's user object."""
    metrics: UserMetrics = field(default_factory=UserMetrics)
    """What the components measure themselves."""
    deterministic: bool = False
    """No threads for blocking bolts, and nothing that depends on how long things take."""
    note_failure: Callable[[str, int, Any, Failure], None] = lambda component, task, message_id, failure: None
    """(spout, task, message id, failure): every failure of a tree, for the operator."""
    journal: Callable[[str, int], Journal | None] = lambda component, index: None
    """(spout, task index): where attempts outlive this worker."""
    trial_turn: TrialTurn = field(default_factory=OwnTurn)
    """When a message under suspicion may be tried."""
    at_hand: AtHand = field(default_factory=lambda: [0])
    """Where the loop says whose code it is in."""


class Assembler:
    """Makes one worker's core."""

    def __init__(self, topology: Topology, plan: Plan, config: Config, me: int, peers: Peers, around: Surroundings):
        self.topology = topology
        self.plan = plan
        self.config = config
        self.me = me
        self.around = around
        self.core = WorkerCore(topology, plan, me, peers, around.now_ns, adapts=not around.deterministic)
        self._rng = random.Random(None if config.seed is None else config.seed * 1009 + me)
        self._conf = config.for_components()
        mine = sorted(self.core.ackers)
        everyones = range(len(plan.ackers))
        # D7b: a spout's trees are tracked by an acker of its own worker where there is one.
        self._acker_turns = itertools.cycle(mine or everyones) if plan.ackers else None

    def build(self) -> WorkerCore:
        """The core with all its tasks opened. Raises TaskCrashed if user code does."""
        for executor in self.plan.executors[self.me]:
            if executor.component == ACKER_COMPONENT:
                continue
            spec = self.topology[executor.component]
            if spec.is_spout:
                self._spout_executor(spec, executor)
            else:
                self._bolt_executor(spec, executor)
        # A tuple then passes several bolts of this worker in one round.
        order = self.topology.downstream()
        self.core.bolts.sort(key=lambda bolt: order.index(bolt.tasks[0].component))
        for runner in self.core.blocking:
            runner.start()
        return self.core

    def _spout_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        tasks = []
        for task in executor.tasks:
            user: Spout = self.around.copy(spec)
            stats = self._stats(task)
            context = self._context(spec, task)
            acker = None if self._acker_turns is None else next(self._acker_turns)
            pending = self._pending(spec, task, user, stats, context.task_index, acker)
            collector = SpoutCollector(
                self._emitter(spec, task, self.core.outbox, context), pending,
                None if acker is None else root_ids(acker), self._report(spec, task),
            )
            limit = spec.config.get("max_spout_pending", self.config.max_spout_pending)
            _guard(spec, task, "open", partial(user.open, self._conf_of(spec), context, collector))
            if hooks := self._hooks(spec, context):
                watch_spout(hooks, collector, pending)
            tasks.append(SpoutTask(spec.id, task, user, collector, pending, stats, limit))
        turn_ns = None if self.around.deterministic else TURN_NS
        self.core.add_spout_executor(SpoutExecutor(tasks, self.around.at_hand, turn_ns))

    def _pending(
        self, spec: ComponentSpec, task: int, user: Spout, stats: TaskStats, index: int, acker: int | None
    ) -> PendingTable:
        around, tracking, config = self.around, self.core.tracking, self.config
        limits = Limits(config.max_attempts, config.max_crashes, config.on_error == "crash")
        attempts = Attempts(limits, around.journal(spec.id, index))
        attempts.resume(around.worker)
        return PendingTable(
            task, user, around.now_ns, round(config.message_timeout_secs * 1e9), stats,
            tracking.init_tree if acker is None else tracking.init_for(acker), tracking.forget_tree,
            partial(around.dead_letter, spec.id, task), attempts, Lane(around.trial_turn),
            partial(around.note_failure, spec.id, task),
        )

    def _bolt_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        tick_secs = spec.config.get("tick_tuple_freq_secs", self.config.tick_tuple_freq_secs)
        bolt: Bolt | BasicBolt = spec.component  # type: ignore[assignment]
        own_thread = bolt.blocking and not self.around.deterministic
        outbox = Outbox() if own_thread else self.core.outbox
        tasks, collectors = [], {}
        for task in executor.tasks:
            user: Any = self.around.copy(spec)
            context = self._context(spec, task)
            emitter = self._emitter(spec, task, outbox, context)
            made_task = BoltTask(spec.id, task, user, self._stats(task), tick_secs)
            tasks.append(made_task)
            report = self._report(spec, task)
            collectors[task] = collector = (
                BasicCollector(emitter, report)
                if isinstance(user, BasicBolt)
                else BoltCollector(emitter, self.around.worker, report, self.core.stats[task])
            )
            arguments = (self._conf_of(spec), context) + (() if isinstance(user, BasicBolt) else (collector,))
            _guard(spec, task, "prepare", partial(user.prepare, *arguments))
            made_task.execute = user.execute  # what `prepare` may have put there
            if hooks := self._hooks(spec, context):
                made_task.execute = watch_bolt(hooks, collector, user.execute)
        made = BoltExecutor(
            tasks, collectors, outbox, self.around.now_ns, self.core.source, self.around.worker,
            crash=self.config.on_error == "crash", at_hand=None if own_thread else self.around.at_hand,
            slices=not self.around.deterministic,
        )
        runner = None
        if own_thread:
            runner = BlockingExecutor(
                made, f"{spec.id}[{executor.first_task}]", self._post, self.config.execute_timeout_of(spec.config)
            )
        self.core.add_bolt_executor(made, runner)

    def _post(self, handover: Any) -> None:
        self.core.post(handover)
        self.around.wake()

    def _stats(self, task: int) -> TaskStats:
        stats = self.core.stats[task] = TaskStats()
        return stats

    def _emitter(self, spec: ComponentSpec, task: int, outbox: Outbox, context: TopologyContext) -> Emitter:
        try:
            emitter = Emitter(
                spec.id, task, self.me, self.topology, self.plan, outbox, self.core.bits, self._rng, context
            )
        except Exception as error:
            raise TaskCrashed(spec.id, task, "prepare of a custom grouping", error) from error
        self.core.emitters[task] = emitter
        return emitter

    def _context(self, spec: ComponentSpec, task: int) -> TopologyContext:
        around = self.around
        index = self.plan.tasks_of(spec.id).index(task)
        return TopologyContext(
            around.topology_name, spec.id, task, index, around.worker, around.attempt, self.plan, around.state_root,
            around.now_ns, random.Random(None if self.config.seed is None else f"{self.config.seed} {spec.id} {index}"),
            metrics=around.metrics, hooks=Hooks(spec.id, task, around.now_ns),
        )

    def _hooks(self, spec: ComponentSpec, context: TopologyContext) -> Hooks | None:
        """The hooks the component added while it was opened, prepared; None if there are none."""
        hooks = cast("Hooks", context.hooks)
        added = _guard(spec, context.task_id, "prepare of a hook", partial(hooks.open, self._conf_of(spec), context))
        if not added:
            return None
        self.core.hooks.append((spec.id, hooks))
        return hooks

    def _conf_of(self, spec: ComponentSpec) -> dict[str, Any]:
        return {**self._conf, **spec.config}

    def _report(self, spec: ComponentSpec, task: int) -> Callable[[BaseException], None]:
        stats = self.core.stats[task]

        def report(error: BaseException) -> None:
            stats.errors += 1
            self.around.report_error(spec.id, task, describe(error))

        return report


def _guard(spec: ComponentSpec, task: int, doing: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        raise TaskCrashed(spec.id, task, doing, error) from error
