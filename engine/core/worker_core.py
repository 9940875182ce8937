"""The worker core: everything a tuple meets inside one worker, with no socket, process or clock of its own::

      spouts ──emit──► outbox ──flush──► inboxes of bolts here ──execute──► outbox ...
                         │                                          │
                         │ acks, fails                              └──► parcels for other workers ──► (link)
                         ▼
                       ackers ──answers──► spouts (ack / on_failure)      ◄── parcels from other workers ──┘

`engine.core.turn` calls its parts (`run_spouts`, `run_bolts`, ...) in their order. `receive()` takes parcels from other
workers, `outgoing` has those for them; the transport moves them.

Guarantees: nothing is lost between its parts; every answer of an acker reaches its spout's table, or a parcel for the
worker of that; the order of one sender's tuples to one task is kept.

Thread: the worker's loop, except where a method says any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from squall.engine.api.config import Config
from squall.engine.api.failure import EXCEPTION, WORKER_DIED, Failure, reason_of
from squall.engine.api.hooks import Hooks
from squall.engine.api.plan import Plan
from squall.engine.api.stream import SYSTEM_COMPONENT, TICK_FIELDS, TICK_STREAM, Stream
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import TupleSource
from squall.engine.core.backpressure import Backpressure, Outgoing
from squall.engine.core.blocking import BlockingExecutor, Handover
from squall.engine.core.executor import BoltExecutor, BoltTask, TaskCrashed, Watch
from squall.engine.core.pace import TURN_NS, Pace
from squall.engine.core.spout_executor import SpoutExecutor, SpoutTask
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import PeerChange
from squall.engine.errors import ComponentError
from squall.engine.flow.batch import Batch
from squall.engine.flow.emitter import Emitter
from squall.engine.flow.parcel import Countdown, Parcel
from squall.engine.foreign.picklable import PickleCheck
from squall.engine.report.metrics import TaskStats
from squall.engine.tracking.peers import Peers

_TICKS = -1
"""The task that ticks come from."""
_MAX_ROUNDS = 4
"""Rounds through the bolts in one turn, so that a tuple passes several bolts here; more would never end in a cycle."""


class WorkerCore:
    """Executors, ackers and the ways between them, of one worker."""

    def __init__(
        self, topology: Topology, plan: Plan, config: Config, me: int, peers: Peers, around: Surroundings
    ) -> None:
        self.topology = topology
        self.plan = plan
        self.me = me
        self.peers = peers
        self._around = around
        self._now_ns = around.now_ns
        self.outbox = around.parts.new_outbox()
        self.stats: dict[int, TaskStats] = {}
        self.emitters: dict[int, Emitter] = {}
        self.bits: dict[int, int] = {}
        self.spouts: list[SpoutExecutor] = []
        self.bolts: list[BoltExecutor] = []
        self._feeders: list[BoltExecutor] = []
        """The bolts that other bolts read from."""
        self.blocking: list[BlockingExecutor] = []
        self.spout_tasks: dict[int, SpoutTask] = {}
        self.bolt_tasks: dict[int, BoltTask] = {}
        self.pace = Pace(topology, plan, me, self.bolt_tasks, self.emitters, around.timed)
        self.balances = not config.even_shuffle
        """True if shuffles follow the waits of tasks."""
        self.hooks: list[Hooks] = []
        """Of the tasks that have some."""
        self._ticking: list[BoltTask] = []
        self.pressure = Backpressure(topology, plan, self.bolt_tasks, config.link_window_bytes)
        self.outgoing = Outgoing(plan, config, self.outbox, self.pressure, self._count)
        self.tracking = around.parts.tracking(
            plan, peers, self.outbox, self.spout_tasks, self.outgoing.parcel, around.parts.acker
        )
        self.ackers = self.tracking.ackers
        self._posted: deque[Callable[[], None]] = deque()
        """Calls that threads want the loop to make."""
        ticks = TupleSource(SYSTEM_COMPONENT, _TICKS, TICK_STREAM, Stream(*TICK_FIELDS))
        self._sources = {(_TICKS, TICK_STREAM): ticks}
        self.active = False
        self.congested = False
        """True if spouts must wait: something is full on the way to other workers, or there."""
        self.report_error = around.report_error
        """Tells the operator of an error in a task."""
        self.ran_dry = True
        """True if nothing was left to do when the last turn ended."""
        self.acted = False
        """True once executors have done anything but ticks that led to nothing; cleared by who looks."""
        self.untracked = [0] * (2 * max(plan.task_worker, default=0)) if around.untracked is None else around.untracked
        """Per receiving task, from 1: tuples without a tree that were sent to it from here; those of them that were
        dropped, because its worker had died before they left. Written as it happens, before they leave."""
        self.watches: Sequence[Watch] = ()
        self.refresh_bits()

    # ---- set-up (see engine.core.assemble) ----

    def add_spout_executor(self, executor: SpoutExecutor) -> None:
        self.spouts.append(executor)
        self.spout_tasks.update((task.task, task) for task in executor.tasks)

    def add_bolt_executor(self, executor: BoltExecutor) -> None:
        component = executor.tasks[0].component
        self.pressure.add(component, executor)
        self.bolts.append(executor)
        if any(self.topology.subscribers(component, stream) for stream in self.topology[component].outputs):
            self._feeders.append(executor)
        if isinstance(executor, BlockingExecutor):
            self.blocking.append(executor)
        for task in executor.tasks:
            self.bolt_tasks[task.task] = task
            if task.tick_ns:
                task.ticks_at_ns = self._now_ns() + task.tick_ns
                self._ticking.append(task)

    def source(self, task: int, stream: str) -> TupleSource:
        """What the tuples of one sender's stream have in common. Any thread."""
        found = self._sources.get((task, stream))
        if found is None:
            component = self.plan.task_component[task]
            found = TupleSource(component, task, stream, self.topology[component].outputs[stream])
            self._sources[task, stream] = found
        return found

    def post(self, call: Callable[[Any], None], argument: Any) -> None:
        """Have the loop make a call before the spouts have their turn, and wake it. Any thread."""
        self._posted.append(partial(call, argument))
        self._around.wake()

    def note_failures(self, component: str, task: int, message_ids: Sequence[Any], failure: Failure) -> None:
        """Tell the operator, and what watches, of messages of a spout task here that have failed together."""
        self._around.note_failures(component, task, message_ids, failure)
        for watch in self.watches:
            watch.failed(task, message_ids, failure)

    # ---- the parts of a turn (see engine.core.turn) ----

    def run_spouts(self) -> None:
        """Put ticks that are due, take in the output of threads, and ask the spouts for more. Raises TaskCrashed."""
        if self._ticking:
            self._tick()
        while self._posted:
            self.acted = True
            self._posted.popleft()()
        may_emit = not (self.congested or self.pressure.congested)
        emits = self.pace.emits if self.active and may_emit else 0
        for spout in self.spouts:
            if spout.run(min(emits, spout.most_emits), may_emit):
                self.acted = True
        self.ran_dry = all(spout.ran_dry for spout in self.spouts)

    def write_journals(self) -> None:
        """After anything that may have made a spout emit: before a bolt executes it, and before it leaves."""
        for spout in self.spouts:
            spout.write_journal()

    def run_feeders(self) -> bool:
        """Run the bolts that others read from; return True if they did anything. Raises TaskCrashed."""
        # Spouts that emitted nothing in `next_tuple` may have emitted while they were told of an answer.
        self._flush_here()
        return self._run_round(self._feeders)

    def run_bolts(self) -> bool:
        """Run the bolts until they have nothing left to do, or for `_MAX_ROUNDS` rounds; slow ones for fewer.
        Raises TaskCrashed."""
        worked, began_ns = False, self._now_ns()
        for _ in range(_MAX_ROUNDS):
            if not self._run_round(self.bolts):
                return worked
            worked = True
            if self.pace.timed and self._now_ns() - began_ns > TURN_NS:
                break
        self.ran_dry = False
        return worked

    def _run_round(self, bolts: list[BoltExecutor]) -> bool:
        busy = False
        for bolt in bolts:
            if not bolt.held and bolt.run():
                busy = True
                self.acted, bolt.acted = self.acted or bolt.acted, False
                self._flush_here()
        return busy

    def end_turn(self, took_ns: int) -> None:
        """All executors had their turn, which took so long."""
        fixed_ns = 0.0
        for bolt in self.bolts:
            fixed_ns, bolt.fixed_ns = fixed_ns + bolt.fixed_ns, 0.0
        most_emits = max((spout.most_emits for spout in self.spouts), default=1)
        self.pace.turn_took(took_ns, round(fixed_ns), most_emits)
        self.pressure.end_turn()

    def _flush_here(self) -> None:
        for batch in self.outbox.take_here():
            self._deliver_here(batch)

    def _deliver_here(self, batch: Batch) -> None:
        self._count(batch)
        self._put(self.bolt_tasks[batch.target], batch, None)

    def _count(self, batch: Batch) -> None:
        for watch in self.watches:
            watch.left(batch)
        rows = len(batch.rows)
        self.stats[batch.source].transferred += rows
        self.emitters[batch.source].count_batch(batch.stream, rows)
        self._count_untracked(batch)

    def _count_untracked(self, batch: Batch) -> None:
        rows = batch.untracked_rows()
        if rows:
            self._around.said_quiet[0] = 0
            self.untracked[2 * batch.target - 2] += rows

    def _tick(self) -> None:
        now = self._now_ns()
        for task in self._ticking:
            if now >= task.ticks_at_ns:
                # A tick that came late, or for which there is no room, is not made up for.
                task.ticks_at_ns = now + task.tick_ns
                if task.task in self.pressure.full:
                    continue
                task.ticks_put += 1
                self._put(task, Batch.untracked(_TICKS, TICK_STREAM, task.task, (task.tick_ns / 1e9,)), None)

    def _put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        for watch in self.watches:
            watch.arrived(batch)
        *before, batch = batch.pieces(self.outbox.edges.next)
        for piece in before:
            self._put(task, piece, None)
        task.received += len(batch.rows)
        self.pressure.put(task, batch)
        task.inbox.append((batch, done))

    def reset(self, roots: Iterable[int]) -> None:
        """Start timeouts afresh, before the spouts look which trees are too late: a bolt with a thread of its own asks
        for it."""
        self.outbox.reset_roots(roots)
        self.tracking.settle()

    def absorb(self, handover: Handover) -> None:
        """Distribute the output of a thread. Raises TaskCrashed if the thread has crashed."""
        for batch in handover.here:
            self._deliver_here(batch)
        for batch in handover.there:
            self.outgoing.pack(batch)
        self.outbox.merge(handover.acks, handover.fails)
        for done in handover.done:
            done()
        if handover.crash is not None:
            raise handover.crash

    # ---- other workers ----

    def not_sent(self, worker: int, parcel: Parcel, error: BaseException) -> TaskCrashed | None:
        """A parcel with tuples that was taken cannot be encoded or sent. None: take it again, in halves, until the one
        is found that cannot. Else that one's trees have been failed, everything else waits to be taken, and its task
        has crashed of it."""
        if parcel.rows > 1:
            self.outgoing.halve(worker, parcel)
            return None
        self.outgoing.parcel(worker).add_tracking(parcel)
        [batch] = parcel.batches
        component = self.plan.task_component[batch.source]
        error = self._naming_field(batch, error)
        crash = TaskCrashed(component, batch.source, f"an emit to {self.plan.task_component[batch.target]}", error)
        failure = Failure(
            reason_of(error), component, batch.source, self.plan.worker_names[self.me], crash.error_text
        )
        self._fail_tuple(batch, batch.source, failure)
        return crash

    def _naming_field(self, batch: Batch, error: BaseException) -> BaseException:
        """Return the error with component, stream and field, if one value of the batch's only tuple cannot be sent."""
        if isinstance(error, MemoryError):
            return error
        source = self.source(batch.source, batch.stream)
        check = PickleCheck(f"{source.component}[{source.task}] stream {source.stream!r}", source.fields)
        try:
            check.test(batch.rows[0])
        except (ComponentError, MemoryError) as named:
            return named
        return error

    def _fail_tuple(self, batch: Batch, task: int, failure: Failure) -> None:
        """The only tuple of a batch goes no further, by an error of this task: that fails its trees and no others."""
        self.outbox.fail_roots(batch.trees, failure)
        self.stats[task].errors += 1
        self._drop(batch)

    def receive(self, parcel: Parcel, done: Callable[[], None]) -> None:
        """Take in a parcel of another worker; `done` is called when all of it has been processed."""
        left = Countdown(len(parcel.batches) + 1, done)
        for batch in parcel.batches:
            self._put(self.bolt_tasks[batch.target], batch, left.step)
        self.tracking.receive(parcel)
        # Last: a tree whose beginning came in the same frame is known by now.
        for batch, position, why in parcel.unread:
            self._not_read(batch, position, why)
        left.step()

    def _not_read(self, batch: Batch, position: int, why: str) -> None:
        """What another worker sent holds a value whose class raises here: a failure of that message alone, counted as
        if `execute` had raised. No worker ends by it: nothing of the user's is half done."""
        plan, source = self.plan, self.source(batch.source, batch.stream)
        component, fields = plan.task_component[batch.target], source.fields
        field = fields[position] if position < len(fields) else str(position)
        text = f"{why} (reading field {field} of stream {batch.stream} of {source.component}[{source.task}])"
        self._fail_tuple(
            batch, batch.target, Failure(EXCEPTION, component, batch.target, plan.worker_names[self.me], text)
        )
        self.report_error(component, batch.target, text)

    def refresh_bits(self) -> None:
        """Recompute which bit a tuple for each task carries. After every change of `peers`."""
        worker_bits = [self.peers.bit(worker) for worker in range(self.plan.n_workers)]
        self.bits.update((task, worker_bits[worker]) for task, worker in self.plan.task_worker.items())

    def peers_changed(
        self, changed: Sequence[PeerChange], end_of: Callable[[int, int], tuple[str, Mapping[int, Failure]]]
    ) -> None:
        """Act on starts and deaths of other workers: fail exactly the trees that the dead ones held.
        `end_of`: as `PeerBoard.end_of`.

        All parcels for the dead are dropped before any tree fails: the answer that a tree failed by one death may be
        for the replacement of another.
        """
        update = self.peers.update
        dead = [
            (worker, incarnation - alive)
            for worker, incarnation, alive, _ in changed if update(worker, incarnation, alive)
        ]
        self.refresh_bits()
        for worker, _ in dead:
            self._drop_for(worker)
        for worker, incarnation in dead:
            explanation, words = end_of(worker, incarnation)
            self.tracking.last_words(words)
            name = self.plan.worker_names[worker]
            self.tracking.worker_died(worker, Failure(WORKER_DIED, worker=name, error=explanation))
        if dead:
            self.write_journals()  # it may be noticed in the middle of a turn, with bolts to come

    def _drop_for(self, worker: int) -> None:
        """Drop the parcels for a worker that died: their trees fail now."""
        worker_of = self.plan.task_worker
        for batch in self.outbox.take_there(lambda target: worker_of[target] == worker):
            self.emitters[batch.source].count_batch(batch.stream, len(batch.rows))
            self._count_untracked(batch)
            self._drop(batch)
        for batch in self.outgoing.drop_for(worker):
            self._drop(batch)

    def _drop(self, batch: Batch) -> None:
        self.untracked[2 * batch.target - 1] += batch.untracked_rows()

    # ---- spouts that starve ----

    @property
    def starves(self) -> bool:
        """True if a spout waits at its limit although nothing is under way in this worker."""
        return any(task.starves for task in self.spout_tasks.values()) and self.quiet

    def widen(self) -> None:
        """Let the spouts that starve have more messages open."""
        for task in self.spout_tasks.values():
            if task.starves:
                task.widen()

    # ---- queries ----

    def refresh_gauges(self) -> None:
        """Bring the gauges and derived counters in `stats` up to date."""
        for bolt in self.bolt_tasks.values():
            bolt.refresh_stats()
        for spout in self.spout_tasks.values():
            spout.refresh_stats()

    @property
    def has_worked(self) -> bool:
        """True if a tuple was emitted or executed here."""
        return any(spout.collector.emitted for spout in self.spout_tasks.values()) or any(
            bolt.stats.executed for bolt in self.bolt_tasks.values()
        )

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts."""
        self.active = active
        for spout in self.spouts:
            spout.set_active(active)

    def end_attempts(self) -> None:
        """The worker ends in order, or by an error that has been charged to its trees."""
        for spout in self.spout_tasks.values():
            spout.count_emits()
            spout.pending.end()

    @property
    def backlog(self) -> int:
        """Tuples in this worker that wait to be executed or sent."""
        return self.outgoing.backlog + sum(task.received - task.processed for task in self.bolt_tasks.values())

    @property
    def quiet(self) -> bool:
        """True if nothing is under way inside this worker. Ticks that wait do not count: they come for ever."""
        # Threads first: one that is no longer busy has handed over its output, which is then seen below.
        return not (
            any(runner.busy for runner in self.blocking)
            or any(spout.busy for spout in self.spouts)
            or self._posted or self.outbox or self.tracking.has_to_tell or self.outgoing
            or any(task.in_queue for task in self.bolt_tasks.values())
        )

    @property
    def next_deadline_ns(self) -> int | None:
        """When there must be a turn again even if nothing arrives."""
        deadlines = [task.ticks_at_ns for task in self._ticking]
        waiting = (task.waits_until_ns for bolt in self.bolts if not bolt.held for task in bolt.tasks)
        deadlines += filter(None, waiting)
        for task in self.spout_tasks.values():
            deadline = task.pending.next_deadline_ns
            if deadline is not None:
                deadlines.append(deadline)
        return min(deadlines, default=None)

    def users(self) -> Iterator[tuple[str, int, Any]]:
        """(component, task, user object) of every task here."""
        for spout in self.spout_tasks.values():
            yield spout.component, spout.task, spout.user
        for bolt in self.bolt_tasks.values():
            yield bolt.component, bolt.task, bolt.user
