"""Builds the executors of one worker from a topology and its plan, opens them, and closes them at the end.

Guarantees
    * Every task has a user object of its own (copied through pickle, in `--local` mode too, so that both modes treat
      shared state alike).
    * `open` and `prepare` run once per task, in task order, before any tuple flows.
    * Each task is closed, whatever the others raise.

Thread: the worker's loop; `close_tasks` comes after its last turn, and stops the threads that still execute.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Spout
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import ACKER_COMPONENT, SYSTEM_PREFIX
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.core.backpressure import SPOUT_TURNS_PER_LIMIT
from squall.engine.core.batch_spout import BatchSpoutExecutor
from squall.engine.core.blocking import BlockingExecutor
from squall.engine.core.blocking_spout import BlockingSpoutExecutor, Emits
from squall.engine.core.emit_paths import use_fast_emit
from squall.engine.core.executor import AnyBolt, BoltExecutor, BoltTask, TaskCrashed, call_for
from squall.engine.core.hook_calls import watch_task
from squall.engine.core.pace import EMIT_NS, NEVER_NS
from squall.engine.core.pending_limit import PendingLimit
from squall.engine.core.spout_executor import SpoutExecutor, SpoutTask
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ComponentError, FailedTuple, SquallError
from squall.engine.flow.bolt_collectors import BasicCollector, BatchCollector, BoltCollector
from squall.engine.flow.emitter import Emitter
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.spout_collector import Gathered, OpenTrees, SpoutCollector
from squall.engine.foreign.text import text_of_error, where_of
from squall.engine.report.metrics import SpoutStats, TaskStats
from squall.engine.tracking.attempts import Limits
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages, Ports
from squall.engine.tracking.peers import Peers


class Assembler:
    """Makes one worker's core."""

    def __init__(self, topology: Topology, plan: Plan, config: Config, me: int, peers: Peers, around: Surroundings):
        self.topology = topology
        self.plan = plan
        self.config = config
        self.me = me
        self.around = around
        self.core = WorkerCore(topology, plan, config, me, peers, around)
        self._warned: set[str] = set()
        self._turn_bytes = config.link_window_bytes // SPOUT_TURNS_PER_LIMIT
        self._rng = random.Random(None if config.seed is None else config.seed * 1009 + me)
        self._conf = config.for_components()
        self._fast = around.parts.fast_emit
        # A spout's trees are tracked by an acker of its own worker where there is one.
        ackers = sorted(self.core.ackers) or range(len(plan.ackers))
        self._acker_turns = itertools.cycle(ackers) if ackers else itertools.repeat(None)

    def build(self) -> WorkerCore:
        """Build the core and open all its tasks. Raises TaskCrashed if user code raises."""
        for executor in self.plan.executors[self.me]:
            if executor.component == ACKER_COMPONENT:
                continue
            spec = self.topology[executor.component]
            if spec.is_spout:
                self._spout_executor(spec, executor)
            else:
                self._bolt_executor(spec, executor)
        # A tuple then passes several bolts of this worker in one round.
        core, order = self.core, self.topology.downstream()
        core.bolts.sort(key=lambda bolt: order.index(bolt.tasks[0].component))
        for runner in core.blocking:
            limit_secs = self.config.execute_timeout_of(self.topology[runner.tasks[0].component].config)
            runner.start(
                partial(core.post, core.absorb), partial(core.post, core.reset), core.outbox.edges.next, limit_secs
            )
        for spout in core.spouts:
            spout.start()
        return core

    def _spout_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        around = self.around
        runner: SpoutExecutor
        if spec.component.blocking and around.threads:
            runner = BlockingSpoutExecutor(around.parts.new_outbox(), self.core.absorb, around.wake, self._turn_bytes)
        else:
            make_runner = BatchSpoutExecutor if isinstance(spec.component, BatchSpout) else SpoutExecutor
            runner = make_runner(around.at_hand, EMIT_NS if around.timed else NEVER_NS, self._turn_bytes)
        for task in executor.tasks:
            self._spout_task(spec, task, runner)
        self.core.add_spout_executor(runner)

    def _spout_task(self, spec: ComponentSpec, task: int, runner: SpoutExecutor) -> None:
        """Make a task, open it and add it to its executor."""
        around, core = self.around, self.core
        user: Spout = self._copy(spec, task)
        stats = core.stats[task] = SpoutStats(around.account(task))
        report = partial(self._report, spec.id, task)
        context = self._context(spec, task, report)
        acker = next(self._acker_turns)
        pending = self._pending(spec, task, stats, acker)

        def new_collector(outbox: Outbox, trees: OpenTrees) -> SpoutCollector:
            emitter = self._emitter(spec, task, outbox, context)
            roots = None if acker is None else around.parts.root_ids(acker, around.parts.draw)
            return SpoutCollector(emitter, trees, roots, report, around.least_block)

        collector = new_collector(core.outbox, pending)
        made = SpoutTask(spec.id, task, user, collector, pending, stats, self._max_pending(spec))
        made.said_quiet = around.said_quiet
        runner.tasks.append(made)
        if isinstance(user, BatchSpout):
            # Rows must not overtake batches that are gathered: the plain path sees to it.
            collector.gathered = Gathered()
        elif isinstance(runner, BlockingSpoutExecutor):
            # The loop itself emits held messages, so it has an emitter of its own.
            made.own = new_collector(runner.outbox, Emits(pending))
            use_fast_emit(made.own, self._fast)
            runner.give(made)
        else:
            use_fast_emit(collector, self._fast)
        self._open(spec, made, context, "open", made.own)

    def _max_pending(self, spec: ComponentSpec) -> int | PendingLimit | None:
        limit: int | str | None = spec.config.get("max_spout_pending", self.config.max_spout_pending)
        if not isinstance(limit, str):
            return limit
        per_processor = self.plan.n_workers / (self.around.processors or math.inf)
        bulk = not all(isinstance(one.component, BasicBolt | AsyncBolt) for one in self.topology.bolts)
        threads = sum(bolt.tasks for bolt in self.topology.bolts if bolt.component.blocking)
        return PendingLimit(self.around.timed, per_processor, bulk, least=2 * threads // spec.tasks)

    def _pending(self, spec: ComponentSpec, task: int, stats: SpoutStats, acker: int | None) -> OpenMessages:
        around, tracking, config = self.around, self.core.tracking, self.config
        here = None if acker is None else tracking.ackers.get(acker)
        limits = Limits(config.max_attempts, config.max_crashes, config.on_error == "crash", config.fail_fast, spec.id)
        fate = Fate(limits)
        fate.attempts.forgot = partial(around.report_error, spec.id, task)
        ports = Ports(
            now_ns=around.now_ns,
            init=tracking.init_tree if here is None else here.init,
            forget=tracking.forget_tree,
            give_up=partial(around.dead_letter, spec.id, task),
            note=partial(self.core.note_failures, spec.id, task),
            init_block=None if here is None else here.init_block,
            tell_stop=around.stop,
            permit=around.trial_permit,
            journal=around.journal(spec.id, self.plan.task_index[task]),
        )
        made = around.parts.pending(task, stats, round(config.message_timeout_secs * 1e9), fate, ports)
        made.resume(around.worker)
        return made

    def _bolt_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        bolt: AnyBolt = spec.component  # type: ignore[assignment]
        make: type[BoltExecutor] = BoltExecutor
        outbox, at_once = self.core.outbox, 0
        if bolt.blocking and self.around.threads:
            make, outbox, at_once = BlockingExecutor, self.around.parts.new_outbox(), 1
            if isinstance(bolt, AsyncBolt):
                # Imported here: asyncio takes its time, and few topologies need it.
                from squall.engine.core.async_bolt import AsyncExecutor

                make, at_once = AsyncExecutor, bolt.max_in_flight
        tasks = [self._bolt_task(spec, task, outbox) for task in executor.tasks]
        for task in tasks:
            task.at_once = at_once
        made = make(spec, tasks, outbox, self.core.source, self.config, self.around, self._turn_bytes)
        self.core.add_bolt_executor(made)

    def _bolt_task(self, spec: ComponentSpec, task: int, outbox: Outbox) -> BoltTask:
        """Make a task and prepare it."""
        user: Any = self._copy(spec, task)
        stats = self.core.stats[task] = TaskStats()
        report = partial(self._report, spec.id, task)
        context = self._context(spec, task, report)
        emitter = self._emitter(spec, task, outbox, context)
        tick_secs = spec.config.get("tick_tuple_freq_secs", self.config.tick_tuple_freq_secs)
        made = BoltTask(spec.id, task, user, stats, tick_secs)
        collectors: tuple[BoltCollector, ...] = ()
        if isinstance(user, BatchBolt):
            made.collector = BatchCollector(emitter, report)
        else:
            if isinstance(user, BasicBolt):
                made.collector = BasicCollector(emitter, report)
            else:
                made.collector = BoltCollector(emitter, self.around.worker, report, stats)
                collectors = (made.collector,)
            use_fast_emit(made.collector, self._fast)
        self._open(spec, made, context, "prepare", *collectors)
        made.enter()
        return made

    def _open(
        self, spec: ComponentSpec, made: SpoutTask | BoltTask, context: TopologyContext, method: str, *collector: Any
    ) -> None:
        """Open a task, and have the hooks that it adds meanwhile see it from then on."""
        conf, hooks = {**self._conf, **spec.config}, context.hooks
        made.returned.warn = context.warn

        def opening() -> None:
            self.around.opening(made.task)
            getattr(made.user, method)(conf, context, *collector)

        call_for(spec.id, made.task, method, opening)
        if call_for(spec.id, made.task, "prepare of a hook", partial(hooks.open, conf, context)):
            self.core.hooks.append(hooks)
            watch_task(hooks, made)

    def _copy(self, spec: ComponentSpec, task: int) -> Any:
        try:
            return self.around.copy(spec)
        except SquallError:
            raise  # it names the component and what to do
        except BaseException as error:
            raise TaskCrashed(spec.id, task, "its copying", error) from error

    def _emitter(self, spec: ComponentSpec, task: int, outbox: Outbox, context: TopologyContext) -> Emitter:
        make = partial(
            Emitter, self.topology, context, outbox, self.core.bits, self._rng, self.around.parts.open_batch,
            debug=spec.config.get("debug", self.config.debug),
        )
        emitter = self.core.emitters[task] = call_for(spec.id, task, "prepare of a custom grouping", make)
        return emitter

    def _context(self, spec: ComponentSpec, task: int, report: Callable[[BaseException], None]) -> TopologyContext:
        around, index = self.around, self.plan.task_index[task]
        inputs: dict[str, dict[str, tuple[str, ...]]] = {}
        for one in spec.subscriptions:
            fields = self.topology[one.source].outputs[one.stream].fields
            # Without those of the system, which components do not see.
            inputs.setdefault(one.source, {})[one.stream] = tuple(n for n in fields if not n.startswith(SYSTEM_PREFIX))
        return TopologyContext(
            around.topology_name, spec.id, task, index, around.worker, around.attempt, self.plan, around.state_root,
            around.now_ns, random.Random(None if self.config.seed is None else f"{self.config.seed} {spec.id} {index}"),
            metrics=around.metrics, input_fields=inputs, wall_ns=around.wall_ns or around.now_ns,
            text_hash=around.text_hash, warn=partial(self._warn, spec.id, report),
        )

    def _warn(self, component: str, report: Callable[[BaseException], None], text: str) -> None:
        """Tell the operator of a problem that can go on, once per component."""
        if component not in self._warned:
            self._warned.add(component)
            report(ComponentError(text))

    def _report(self, component: str, task: int, error: BaseException) -> None:
        """Tell the operator of an error that a component reports."""
        around = self.around
        self.core.stats[task].errors += 1
        text, where = text_of_error(error), where_of(error)
        around.report_error(component, task, f"{text} {where}".rstrip())
        if not issubclass(type(error), FailedTuple):  # whose messages fail with the same text
            told = Failure("reported", component, task, around.worker, text, attempt=0, where=f"{where} with none")
            around.note_failures(component, task, [None], told)


def close_tasks(core: WorkerCore) -> list[TaskCrashed]:
    """Call `close` and `cleanup` of every task, after `deactivate` of active spouts; returns the errors they raised."""
    crashes: list[TaskCrashed] = []

    def collect(call: Callable[..., object], *arguments: Any) -> None:
        try:
            call(*arguments)
        except TaskCrashed as crash:
            crashes.append(crash)

    for spout in core.spouts:
        collect(spout.set_active, False)
    for spout in core.spouts:
        spout.end()
    closed: set[int] = set()
    runners: list[BlockingExecutor | SpoutExecutor] = [*core.blocking, *core.spouts]
    for runner in runners:
        if runner.stop():
            closed.update(task.task for task in runner.tasks)
        crashes += runner.end_errors
    for component, task, user in core.users():
        method = "close" if task in core.spout_tasks else "cleanup"
        if task not in closed:
            collect(call_for, component, task, method, partial(methodcaller(method), user))
    for hooks in core.hooks:
        collect(call_for, hooks.component, hooks.task, "cleanup of a hook", hooks.close)
    return crashes
