"""The worker core: everything a tuple meets inside one worker, with no socket, process or clock of its own.

::

      spouts ──emit──► outbox ──flush──► inboxes of bolts here ──execute──► outbox ...
                         │                                          │
                         │ acks, fails                              └──► parcels for other workers ──► (link)
                         ▼
                       ackers ──answers──► spouts (ack / on_failure)      ◄── parcels from other workers ──┘

One thread drives it: `step()` gives every executor a turn; `receive()` takes what other workers sent, `attend()`
executes it at once; `take_parcel()` hands over what is for them. Who moves the parcels is the caller's
business: ZeroMQ links in a worker process, plain method calls in `--local` mode and in simulation.

Guarantees: nothing is lost between its parts; every answer of an acker reaches its spout's table or, when that is in
another worker, a parcel; the order of one sender's tuples to one task is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from engine.batch import Batch
from engine.blocking import BlockingExecutor, Handover
from engine.component import BasicBolt
from engine.countdown import Countdown
from engine.emitter import Emitter
from engine.executor import BoltExecutor, BoltTask
from engine.failure import ANOTHER_TUPLE, WORKER_DIED, Failure
from engine.hooks import Hooks
from engine.metrics import TaskStats
from engine.outbox import Outbox
from engine.parcel import Parcel
from engine.peers import Peers
from engine.plan import Plan
from engine.spout_executor import FIRST_TURN_EMITS, MAX_TURN_EMITS, SpoutExecutor, SpoutTask
from engine.stream import SYSTEM_COMPONENT, TICK_FIELDS, TICK_STREAM, Stream
from engine.topology import Topology
from engine.tracking import Tracking
from engine.tuple import Source

_TICK_SOURCE = Source(SYSTEM_COMPONENT, -1, TICK_STREAM, Stream(*TICK_FIELDS))
_LONG_TURN_NS = 10_000_000
"""A turn that took longer than this makes the next ones smaller, bolts that did end theirs. Word count's take 4 ms."""
_LONG_SAY_NS = 500_000
"""Nobody's answer waits longer than this, about as long as a frame there and back, for what could go with it."""
_MAX_TURNS = 4
"""Rounds through the bolts in one step, so that a tuple passes several bolts of this worker without waiting for the
next; more would keep a step from ending when bolts feed each other in a cycle."""


class WorkerCore:
    """Executors, ackers and the ways between them, of one worker."""

    def __init__(
        self, topology: Topology, plan: Plan, me: int, peers: Peers, now_ns: Callable[[], int], adapts: bool = True
    ) -> None:
        """`adapts`: the spouts' share of a turn follows the time turns take; not where order must not depend on it."""
        self.topology = topology
        self.plan = plan
        self.me = me
        self.peers = peers
        self._now_ns = now_ns
        self.outbox = Outbox()
        self.stats: dict[int, TaskStats] = {}
        self.emitters: dict[int, Emitter] = {}
        self.bits: dict[int, int] = {}
        self.spouts: list[SpoutExecutor] = []
        self.bolts: list[BoltExecutor] = []
        self._feeders: list[BoltExecutor] = []
        """Those of them that other bolts read from."""
        self.blocking: list[BlockingExecutor] = []
        self.spout_tasks: dict[int, tuple[SpoutExecutor, SpoutTask]] = {}
        self.bolt_tasks: dict[int, BoltTask] = {}
        self._blocking_of: dict[int, BlockingExecutor] = {}
        self.hooks: list[tuple[str, Hooks]] = []
        """(component, hooks) of the tasks that have some."""
        self._ticking: list[BoltTask] = []
        self._parcels: dict[int, Parcel] = {}
        self.tracking = Tracking(plan, peers, self.outbox, self.spout_tasks, self._parcel)
        self.ackers = self.tracking.ackers
        self._handovers: deque[Handover] = deque()
        self._sources: dict[tuple[int, str], Source] = {}
        self._adapts = adapts
        self._turn_emits = FIRST_TURN_EMITS if adapts else MAX_TURN_EMITS
        self.active = False
        self.congested = False
        """Set by the caller: something downstream is full, spouts must wait."""
        self._said_ns = 0
        """How long spouts and feeders took in the last turn."""
        self.ran_dry = True
        """Nothing was left to do when the last turn ended."""
        self.dropped = 0
        """Tuples that were for a worker that died before they left."""
        self.refresh_bits()

    # ---- set-up (see engine.assemble) ----

    def add_spout_executor(self, executor: SpoutExecutor) -> None:
        self.spouts.append(executor)
        for task in executor.tasks:
            self.spout_tasks[task.task] = (executor, task)

    def add_bolt_executor(self, executor: BoltExecutor, blocking: BlockingExecutor | None) -> None:
        if blocking is None:
            self.bolts.append(executor)
            component = executor.tasks[0].component
            if any(self.topology.subscribers(component, stream) for stream in self.topology[component].outputs):
                self._feeders.append(executor)
        else:
            self.blocking.append(blocking)
        for task in executor.tasks:
            self.bolt_tasks[task.task] = task
            if blocking is not None:
                self._blocking_of[task.task] = blocking
            if task.tick_ns:
                task.ticks_at_ns = self._now_ns() + task.tick_ns
                self._ticking.append(task)

    def source(self, task: int, stream: str) -> Source:
        """What the tuples of one sender's stream have in common. Any thread."""
        found = self._sources.get((task, stream))
        if found is None:
            if stream == TICK_STREAM:
                return _TICK_SOURCE
            component = self.plan.task_component[task]
            found = Source(component, task, stream, self.topology[component].outputs[stream])
            self._sources[task, stream] = found
        return found

    def post(self, handover: Handover) -> None:
        """What an executor with a thread of its own has produced. Any thread; the caller wakes the loop."""
        self._handovers.append(handover)

    # ---- the turn of the loop ----

    def step(self, pause: Callable[[], bool] = lambda: False) -> bool:
        """Give every executor a turn; whether anything was done. `pause` is called when the spouts and the bolts that
        feed others have said what they have to say, and before them too if they take their time: to send what other
        workers wait for, and to take in what has come; whether anything has. Raises TaskCrashed."""
        worked = self._said_ns > _LONG_SAY_NS and pause()
        if self._ticking:
            self._tick()
        if self._handovers:
            worked = True
            self._absorb_handovers()
        began_ns = self._now_ns()
        emits = self._turn_emits if self.active and not self.congested else 0
        dry = True
        for spout in self.spouts:
            if spout.run(emits, not self.congested):
                worked = True
            dry = dry and spout.ran_dry
        worked = self.settle() or worked
        # Spouts that had nothing to say in `next_tuple` may have emitted while they were told of an answer.
        self._flush_here()
        self.ran_dry = dry
        worked = self._run_round(self._feeders) or worked
        self._said_ns = self._now_ns() - began_ns
        worked = pause() or worked
        worked = self._run_bolts() or worked
        worked = self.settle() or worked
        if self._adapts:
            self._adapt(self._now_ns() - began_ns)
        return worked

    def attend(self) -> None:
        """Execute what other workers have sent, and take in their answers, before the spouts here say more: whoever
        sent it waits for what comes of it. Raises TaskCrashed."""
        self._write_journals()  # what came may have told spouts of answers, and made them emit
        self._run_bolts()
        self.settle()

    def settle(self) -> bool:
        """Bring what was acked or failed to the ackers, and their answers to the spouts. Raises TaskCrashed."""
        if not self.tracking.settle():
            return False
        self._write_journals()
        return True

    def _write_journals(self) -> None:
        for spout in self.spouts:
            spout.write_journal()

    def _run_bolts(self) -> bool:
        """Let the bolts work until they have nothing left to do, or for `_MAX_TURNS` rounds; slow ones for fewer."""
        worked, began_ns = False, self._now_ns()
        for _ in range(_MAX_TURNS):
            if not self._run_round(self.bolts):
                return worked
            worked = True
            if self._adapts and self._now_ns() - began_ns > _LONG_TURN_NS:
                break
        self.ran_dry = False
        return worked

    def _run_round(self, bolts: list[BoltExecutor]) -> bool:
        busy = False
        for bolt in bolts:
            if bolt.run():
                busy = True
                self._flush_here()
        return busy

    def _adapt(self, turn_ns: int) -> None:
        """Emit less per turn where bolts are slow, so that answers, frames and commands are not kept waiting."""
        if turn_ns > _LONG_TURN_NS:
            self._turn_emits = max(1, self._turn_emits * _LONG_TURN_NS // turn_ns)
        elif self._turn_emits < MAX_TURN_EMITS:
            self._turn_emits = min(MAX_TURN_EMITS, 2 * self._turn_emits)

    def _flush_here(self) -> None:
        for batch in self.outbox.opened_here:
            self._deliver_here(batch.take())
        self.outbox.opened_here.clear()

    def _deliver_here(self, batch: Batch) -> None:
        self._count(batch)
        self._put(self.bolt_tasks[batch.target], batch, None)

    def _count(self, batch: Batch) -> None:
        rows = len(batch.rows)
        self.stats[batch.source].transferred += rows
        self.emitters[batch.source].count_batch(batch.stream, rows)

    def _tick(self) -> None:
        now = self._now_ns()
        for task in self._ticking:
            if now >= task.ticks_at_ns:
                # A tick that came late is not made up for: the next is one period from now.
                task.ticks_at_ns = now + task.tick_ns
                self._put(task, Batch.untracked(-1, TICK_STREAM, task.task, (task.tick_ns / 1e9,)), None)

    def _put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        task.received += len(batch.rows)
        if (blocking := self._blocking_of.get(task.task)) is not None:
            blocking.put(task, batch, done)
        else:
            task.inbox.append((batch, done))

    def _absorb_handovers(self) -> None:
        handovers = self._handovers
        while handovers:
            handover = handovers.popleft()
            for batch in handover.here:
                self._deliver_here(batch)
            for batch in handover.there:
                self._pack(batch)
            self.outbox.absorb(handover.acks, handover.workers, handover.fails, handover.resets)
            for done in handover.done:
                done()
            if handover.crash is not None:
                raise handover.crash

    # ---- other workers ----

    def _parcel(self, worker: int) -> Parcel:
        parcel = self._parcels.get(worker)
        if parcel is None:
            parcel = self._parcels[worker] = Parcel()
        return parcel

    @property
    def for_others(self) -> int:
        """Tuples and tracking messages that wait for being sent to other workers."""
        waiting = sum(len(batch.rows) for batch in self.outbox.opened_there)
        for parcel in self._parcels.values():
            waiting += parcel.weight
        return waiting

    def close_parcels(self, slots: Collection[int] | None = None) -> list[int]:
        """Make everything for these workers (by default all) ready to be taken with `take_parcel`; the slots of those
        that there is something for."""
        outbox, worker_of = self.outbox, self.plan.task_worker
        stay = []
        for batch in outbox.opened_there:
            if slots is None or worker_of[batch.target] in slots:
                self._pack(batch.take())
            else:
                stay.append(batch)
        outbox.opened_there[:] = stay
        return [slot for slot, parcel in self._parcels.items() if parcel and (slots is None or slot in slots)]

    def _pack(self, batch: Batch) -> None:
        self._count(batch)
        parcel = self._parcel(self.plan.task_worker[batch.target])
        parcel.batches.append(batch)
        parcel.rows += len(batch.rows)

    def take_parcel(self, worker: int) -> Parcel:
        return self._parcels.pop(worker)

    def receive(self, parcel: Parcel, done: Callable[[], None]) -> None:
        """Take in what another worker sent; `done` is called when all of it has been processed."""
        left = Countdown(len(parcel.batches) + 1, done)
        for batch in parcel.batches:
            self._put(self.bolt_tasks[batch.target], batch, left.step)
        self.tracking.receive(parcel)
        left.step()

    def refresh_bits(self) -> None:
        """Recompute which bit a tuple for each task carries. After every change of `peers`."""
        worker_bits = [self.peers.bit(slot) for slot in range(self.plan.n_workers)]
        self.bits.update((task, worker_bits[worker]) for task, worker in self.plan.task_worker.items())

    def peer_changed(
        self, slot: int, incarnation: int, alive: bool, last_words: Mapping[int, Failure] | None = None
    ) -> None:
        """Another worker started, became ready or died: replay exactly what the dead one held. `last_words`: the trees
        that it is known to have ended by."""
        died = self.peers.update(slot, incarnation, alive)
        self.refresh_bits()
        if not died:
            return
        self._drop_for(slot)
        explanation = ""
        if last_words is not None:
            explanation = ANOTHER_TUPLE
            self.tracking.last_words(last_words)
        self.tracking.worker_died(slot, Failure(WORKER_DIED, worker=self.plan.worker_names[slot], error=explanation))
        self._write_journals()  # it may be noticed in the middle of a turn, with bolts to come

    def _drop_for(self, slot: int) -> None:
        """What was to go to a worker that died belongs to trees that fail now."""
        keep = []
        for batch in self.outbox.opened_there:
            if self.plan.task_worker[batch.target] == slot:
                rows = len(batch.take().rows)
                self.dropped += rows
                self.emitters[batch.source].count_batch(batch.stream, rows)
            else:
                keep.append(batch)
        self.outbox.opened_there[:] = keep
        parcel = self._parcels.pop(slot, None)
        if parcel is not None:
            self.dropped += parcel.rows

    # ---- what the caller wants to know ----

    def refresh_gauges(self) -> None:
        """Bring the gauges and derived counters in `stats` up to date."""
        for task, emitter in self.emitters.items():
            self.stats[task].emitted = emitter.emitted
        for _, spout in self.spout_tasks.values():
            stats = spout.stats
            stats.emitted = spout.collector.emitted
            stats.pending = len(spout.pending)
            stats.exhausted = spout.finished
            stats.crashes = spout.pending.attempts.crashes
        for bolt in self.bolt_tasks.values():
            bolt.stats.in_queue = bolt.received - bolt.processed
            if isinstance(bolt.user, BasicBolt):
                bolt.stats.acked = bolt.stats.executed - bolt.stats.failed

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the spouts."""
        self.active = active
        for spout in self.spouts:
            spout.set_active(active)

    def end_attempts(self) -> None:
        """The worker ends in order, or by an error that has been charged to its trees."""
        for _, spout in self.spout_tasks.values():
            spout.pending.attempts.end(spout.pending.trees)

    @property
    def backlog(self) -> int:
        """Tuples in this worker that wait to be executed or sent."""
        return self.for_others + sum(task.received - task.processed for task in self.bolt_tasks.values())

    @property
    def quiet(self) -> bool:
        """Nothing is under way inside this worker."""
        outbox = self.outbox
        # Threads first: one that is no longer busy has handed over what it had, so that it is seen below.
        return not (
            any(runner.busy for runner in self.blocking)
            or self._handovers or outbox.acks or outbox.fails or outbox.opened_here or outbox.opened_there
            or any(map(bool, self._parcels.values()))
            or any(task.received != task.processed for task in self.bolt_tasks.values())
        )

    @property
    def next_deadline_ns(self) -> int | None:
        """When `step` must be called again even if nothing arrives."""
        deadlines = [task.ticks_at_ns for task in self._ticking]
        for _, task in self.spout_tasks.values():
            deadline = task.pending.next_deadline_ns
            if deadline is not None:
                deadlines.append(deadline)
        return min(deadlines, default=None)

    def users(self) -> Iterator[tuple[str, int, Any]]:
        """(component, task, user object) of every task here."""
        for _, spout in self.spout_tasks.values():
            yield spout.component, spout.task, spout.user
        for bolt in self.bolt_tasks.values():
            yield bolt.component, bolt.task, bolt.user
