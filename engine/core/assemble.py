"""Builds the executors of one worker from a topology and its plan, and opens them.

Guarantees: every task has a user object of its own (copied through pickle, in `--local` mode too, so that both modes
treat shared state alike); `open` and `prepare` run once per task, in task order, before any tuple flows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Spout
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.hooks import Hooks
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.api.stream import ACKER_COMPONENT, SYSTEM_PREFIX
from squall.engine.api.topology import ComponentSpec, Topology
from squall.engine.core.backpressure import SPOUT_TURNS_PER_LIMIT
from squall.engine.core.batch_spout import BatchSpoutExecutor
from squall.engine.core.blocking import BlockingExecutor
from squall.engine.core.blocking_spout import BlockingSpoutExecutor, Emits
from squall.engine.core.emit_paths import use_fast_emit, watch_batches, watch_rows
from squall.engine.core.executor import AnyBolt, BoltExecutor, BoltTask, TaskCrashed, call_for, entry_of
from squall.engine.core.hook_calls import (
    watch_answers,
    watched_basic_execute,
    watched_batch_execute,
    watched_execute,
)
from squall.engine.core.pace import EMIT_NS, NEVER_NS
from squall.engine.core.pending_limit import PendingLimit
from squall.engine.core.spout_executor import SpoutExecutor, SpoutTask
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ComponentError, FailedTuple, SquallError
from squall.engine.flow.bolt_collectors import BasicCollector, BatchCollector, BoltCollector
from squall.engine.flow.emitter import Emitter
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.spout_collector import Gathered, SpoutCollector
from squall.engine.foreign.methods import Returned, checked
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
        self._blocking_spouts: list[BlockingSpoutExecutor] = []
        self._turn_bytes = config.link_window_bytes // SPOUT_TURNS_PER_LIMIT
        self._rng = random.Random(None if config.seed is None else config.seed * 1009 + me)
        self._conf = config.for_components()
        self._fast = around.parts.fast_emit
        mine = sorted(self.core.ackers)
        everyones = range(len(plan.ackers))
        # A spout's trees are tracked by an acker of its own worker where there is one.
        self._acker_turns = itertools.cycle(mine or everyones) if plan.ackers else None

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
        order = self.topology.downstream()
        self.core.bolts.sort(key=lambda bolt: order.index(bolt.tasks[0].component))
        for runner in self.core.blocking:
            first = runner.tasks[0]
            runner.start(
                f"{first.component}[{first.task}]", self.core.post, self.core.post_resets, self.around.wake,
                self.core.outbox.edges.next, self.config.execute_timeout_of(self.topology[first.component].config),
            )
        for spout in self._blocking_spouts:
            spout.start()
        return self.core

    def _spout_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        in_batches, emit_ns = isinstance(spec.component, BatchSpout), EMIT_NS if self.around.timed else NEVER_NS
        runner: SpoutExecutor
        if spec.component.blocking and self.around.threads:
            outbox, name = self.around.parts.new_outbox(), f"{spec.id}[{executor.first_task}]"
            runner = BlockingSpoutExecutor(outbox, name, self.core.absorb, self.around.wake, self._turn_bytes)
            self._blocking_spouts.append(runner)
        else:
            make_runner = BatchSpoutExecutor if in_batches else SpoutExecutor
            runner = make_runner([], self.around.at_hand, emit_ns, self._turn_bytes)
        for task in executor.tasks:
            self._spout_task(spec, task, runner)
        self.core.add_spout_executor(runner)

    def _spout_task(self, spec: ComponentSpec, task: int, runner: SpoutExecutor) -> None:
        """Make a task, open it and add it to its executor."""
        user, context, pending, stats, roots = self._spout_parts(spec, task)
        report = self._report(spec, task)
        own = collector = SpoutCollector(
            self._emitter(spec, task, self.core.outbox, context), pending, roots(), report, self.around.least_block
        )
        made = SpoutTask(
            spec.id, task, user, collector, pending, stats, self._max_pending(spec), self.around.said_quiet
        )
        runner.tasks.append(made)
        if isinstance(runner, BlockingSpoutExecutor):
            # The loop itself emits held messages, so it has an emitter of its own.
            emits = Emits(pending)
            own = SpoutCollector(
                self._emitter(spec, task, runner.outbox, context), emits, roots(), report, self.around.least_block
            )
            use_fast_emit(own, self._fast)
            runner.give(made, own, emits)
        elif isinstance(user, BatchSpout):
            # Rows must not overtake batches that are gathered: the plain path sees to it.
            own.gathered = Gathered()
        else:
            use_fast_emit(own, self._fast)
        asked = "next_batch" if isinstance(user, BatchSpout) else "next_tuple"
        made.returned = Returned(spec.id, task, asked, context.warn)
        made.may_wait = spec.component.blocking
        self._open(spec, task, "open", partial(user.open, self._conf_of(spec), context, own))
        if hooks := self._hooks(spec, context):
            began_ns = watch_answers(hooks, made)
            watch_rows(own, hooks, began_ns)
            watch_batches(own, hooks, began_ns)

    def _spout_parts(
        self, spec: ComponentSpec, task: int
    ) -> tuple[Spout, TopologyContext, OpenMessages, SpoutStats, Callable[[], Iterator[int] | None]]:
        """Make the parts of a spout task: the user's object, its context, its open messages, its counters, and the
        function that makes its sources of root ids."""
        user: Spout = self._copy(spec, task)
        stats = self.core.stats[task] = SpoutStats(self.around.account(task))
        context = self._context(spec, task)
        acker = None if self._acker_turns is None else next(self._acker_turns)
        pending = self._pending(spec, task, stats, context.task_index, acker)

        def new_roots() -> Iterator[int] | None:
            return None if acker is None else self.around.parts.root_ids(acker, self.around.parts.draw)

        return user, context, pending, stats, new_roots

    def _max_pending(self, spec: ComponentSpec) -> int | PendingLimit | None:
        limit: int | str | None = spec.config.get("max_spout_pending", self.config.max_spout_pending)
        if not isinstance(limit, str):
            return limit
        per_processor = self.plan.n_workers / (self.around.processors or math.inf)
        bulk = not all(isinstance(one.component, BasicBolt | AsyncBolt) for one in self.topology.bolts)
        threads = sum(bolt.tasks for bolt in self.topology.bolts if bolt.component.blocking)
        return PendingLimit(self.around.timed, per_processor, bulk, least=2 * threads // spec.tasks)

    def _pending(
        self, spec: ComponentSpec, task: int, stats: SpoutStats, index: int, acker: int | None
    ) -> OpenMessages:
        around, tracking, config = self.around, self.core.tracking, self.config
        limits = Limits(config.max_attempts, config.max_crashes, config.on_error == "crash", config.fail_fast, spec.id)
        fate = Fate(limits)
        fate.attempts.forgot = partial(around.report_error, spec.id, task)
        ports = Ports(
            now_ns=around.now_ns,
            init=tracking.init_tree if acker is None else tracking.init_for(acker),
            forget=tracking.forget_tree,
            give_up=partial(around.dead_letter, spec.id, task),
            note=partial(around.note_failures, spec.id, task),
            init_block=None if acker is None else tracking.init_block_for(acker),
            tell_stop=around.stop,
            permit=around.trial_permit,
            journal=around.journal(spec.id, index),
        )
        made = around.parts.pending(task, stats, round(config.message_timeout_secs * 1e9), fate, ports)
        made.resume(around.worker)
        return made

    def _bolt_executor(self, spec: ComponentSpec, executor: ExecutorPlan) -> None:
        tick_secs = spec.config.get("tick_tuple_freq_secs", self.config.tick_tuple_freq_secs)
        bolt: AnyBolt = spec.component  # type: ignore[assignment]
        around, own_thread = self.around, bolt.blocking and self.around.threads
        outbox = around.parts.new_outbox() if own_thread else self.core.outbox
        tasks = []
        for task in executor.tasks:
            user: Any = self._copy(spec, task)
            stats = self.core.stats[task] = TaskStats()
            context = self._context(spec, task)
            emitter = self._emitter(spec, task, outbox, context)
            made_task = BoltTask(spec.id, task, user, stats, tick_secs)
            tasks.append(made_task)
            report = self._report(spec, task)
            made_task.collector = self._prepared(spec, made_task, emitter, context, report)
        make: type[BoltExecutor] = BlockingExecutor if own_thread else BoltExecutor
        if own_thread and isinstance(bolt, AsyncBolt):
            # Imported here: asyncio takes its time, and few topologies need it.
            from squall.engine.core.async_bolt import AsyncExecutor

            make = AsyncExecutor
        for made_task in tasks if own_thread else ():
            made_task.at_once = bolt.max_in_flight if isinstance(bolt, AsyncBolt) else 1
        made = make(spec, tasks, outbox, self.core.source, self.config, around, self._turn_bytes)
        self.core.add_bolt_executor(made)

    def _prepared(
        self, spec: ComponentSpec, task: BoltTask, emitter: Emitter, context: TopologyContext,
        report: Callable[[BaseException], None],
    ) -> BasicCollector | BoltCollector | BatchCollector:
        """Prepare the user's object of a task; the collector that it has been given."""
        user: Any = task.user
        prepare = partial(user.prepare, self._conf_of(spec), context)
        collector: BasicCollector | BoltCollector | BatchCollector
        if isinstance(user, BasicBolt):
            collector, watched = BasicCollector(emitter, report), watched_basic_execute
        elif isinstance(user, BatchBolt):
            collector, watched = BatchCollector(emitter, report), watched_batch_execute
        else:
            collector, watched = BoltCollector(emitter, self.around.worker, report, task.stats), watched_execute
            prepare = partial(prepare, collector)
        if not isinstance(collector, BatchCollector):
            use_fast_emit(collector, self._fast)
        self._open(spec, task.task, "prepare", prepare)
        task.execute = entry_of(user)  # what `prepare` may have put there
        task.returned = Returned(spec.id, task.task, task.execute_name, context.warn)
        if hooks := self._hooks(spec, context):
            if isinstance(collector, BatchCollector):
                watch_batches(collector, hooks)
            else:
                watch_rows(collector, hooks)
            may_return = isinstance(user, AsyncBolt)
            task.execute = watched(hooks, task.execute if may_return else checked(task.execute, task.returned))
        return collector

    def _open(self, spec: ComponentSpec, task: int, doing: str, call: Callable[[], object]) -> None:
        def opening() -> None:
            self.around.opening(task)
            call()

        call_for(spec.id, task, doing, opening)

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

    def _context(self, spec: ComponentSpec, task: int) -> TopologyContext:
        around = self.around
        index = self.plan.task_index[task]
        inputs: dict[str, dict[str, tuple[str, ...]]] = {}
        for one in spec.subscriptions:
            fields = self.topology[one.source].outputs[one.stream].fields
            # Without those of the system, which components do not see.
            inputs.setdefault(one.source, {})[one.stream] = tuple(n for n in fields if not n.startswith(SYSTEM_PREFIX))
        return TopologyContext(
            around.topology_name, spec.id, task, index, around.worker, around.attempt, self.plan, around.state_root,
            around.now_ns, random.Random(None if self.config.seed is None else f"{self.config.seed} {spec.id} {index}"),
            metrics=around.metrics, input_fields=inputs, hooks=Hooks(spec.id, task, around.now_ns),
            wall_ns=around.wall_ns or around.now_ns,
            text_hash=around.text_hash, warn=self._warn(spec, task),
        )

    def _hooks(self, spec: ComponentSpec, context: TopologyContext) -> Hooks | None:
        """The hooks the component added while it was opened, prepared; None if there are none."""
        hooks = cast("Hooks", context.hooks)
        prepare = partial(hooks.open, self._conf_of(spec), context)
        if not call_for(spec.id, context.task_id, "prepare of a hook", prepare):
            return None
        self.core.hooks.append((spec.id, hooks))
        return hooks

    def _conf_of(self, spec: ComponentSpec) -> dict[str, Any]:
        return {**self._conf, **spec.config}

    def _warn(self, spec: ComponentSpec, task: int) -> Callable[[str], None]:
        """Make a function that tells the operator of a problem that can go on, once per component."""
        report = self._report(spec, task)

        def warn(text: str) -> None:
            if spec.id not in self._warned:
                self._warned.add(spec.id)
                report(ComponentError(text))

        return warn

    def _report(self, spec: ComponentSpec, task: int) -> Callable[[BaseException], None]:
        stats, around = self.core.stats[task], self.around

        def report(error: BaseException) -> None:
            stats.errors += 1
            text, where = text_of_error(error), where_of(error)
            around.report_error(spec.id, task, f"{text} {where}".rstrip())
            if not issubclass(type(error), FailedTuple):  # whose messages fail with the same text
                told = Failure("reported", spec.id, task, around.worker, text, attempt=0, where=f"{where} with none")
                around.note_failures(spec.id, task, [None], told)

        return report
