"""Runs one worker core for one batch: brings it back as it was, gives it its tuples, and takes what it has become.

::

    state of batch n - 1 ──► core ──► parcels for the levels below, acks for the spouts (read in batch n + 1)
    parcels of batch n   ──►      ──► state of batch n, report

Guarantees: outputs and state come from one execution, whose nonce they all bear; nothing outside the core remembers a
batch, so that a lost batch is undone by forgetting its rows. The exception are files in state directories.
Relies on the engine's worker core for everything that a tuple meets. Thread: its caller's.
"""

from __future__ import annotations

import pickle
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import cloudpickle

from squall.engine.api.failure import ANOTHER_TUPLE, EXCEPTION, WORKER_DIED, Failure
from squall.engine.api.topology import ComponentSpec
from squall.engine.api.tuple import Run
from squall.engine.api.user_metrics import UserMetrics
from squall.engine.core.assemble import Assembler, close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import is_drained, readings_of
from squall.engine.core.surroundings import PRODUCT, Surroundings
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.foreign.text import where_of
from squall.engine.report.failure_log import FailureLog, Failures
from squall.engine.report.metrics import ABANDONED, ACCOUNT_COLUMNS, TASK_COUNTERS, SpoutStats
from squall.engine.report.run_report import TaskReading
from squall.engine.state.records.identified import IdentifiedSpout
from squall.engine.state.sink_task import GatheringTask
from squall.engine.tracking.acker import Acker
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages, Ports
from squall.engine.tracking.peers import Peers
from squall.pipeline.on_spark.layout import Layout
from squall.pipeline.on_spark.lives import Life, Settled
from squall.pipeline.on_spark.woven_lives import life_of, users_of

#: Tuples that a worker collects for others before they leave as rows.
FLUSH_TUPLES = 8_192
#: The worker of every task, in reports: which process runs one changes with each batch.
WORKER = "spark"
#: Turns in a row in which a spout may emit nothing until the batch goes on without it.
DRY_TURNS = 3


@dataclass(frozen=True)
class HostTurn:
    """What all workers of a batch are told."""

    number: int
    clock_ns: int
    """The topology's clock at the begin of the batch; it goes on after a restart."""
    quota: int
    """Messages that a spout task may emit."""
    active: bool = True
    closing: bool = False
    """True if tasks are closed if their spouts are exhausted, or not active."""
    undone: bool = False
    """True if the batch before was undone: bolts are as before it, and its messages fail."""
    settled: Settled = field(default_factory=dict)
    """What is settled of the spouts, if there are bolts with state."""


@dataclass
class WorkerState:
    """A worker at the end of a batch."""

    nonce: int
    life: bytes
    """The user's object: see `lives`."""
    stats: dict[str, Any]
    emitted: dict[str, int]
    """Emits by stream."""
    untracked: list[int]
    metrics: list[tuple[str, str, bytes]]
    failures: Failures
    tick_at_ns: int = 0
    tracking: bytes = b""
    """Of a spout: its open messages and its acker."""
    fresh: tuple[int, ...] = ()
    """Roots of the trees that were begun in this batch."""
    active: bool = False
    report: WorkerReport | None = None
    """Its last one, once its task has been closed."""


@dataclass
class WorkerReport:
    """What the driver hears of a worker's batch."""

    worker: int
    nonce: int
    heard: dict[int, int]
    """Feeder -> its nonce."""
    rows: int
    """The rows beside this one that no worker of this batch reads."""
    reading: TaskReading
    is_spout: bool
    finished: bool
    """A spout: exhausted, and nothing pending."""
    dry: bool
    """A spout: it would not have emitted more."""
    closed: bool
    raised: list[str]
    """Exceptions by which a worker of ours would end."""
    errors: list[tuple[str, int, str]]
    letters: list[tuple[str, int, str, Any, Any, Failure]]
    stopped: str
    """Why no spout may emit any more: a fault of the set-up."""
    failures: Failures
    metrics: list[tuple[str, int, str, str, bytes]]
    close_errors: list[str]
    said: str
    emitted: int
    """In this batch."""
    left_out: tuple[str, ...] = ()
    settled: Settled = field(default_factory=dict)
    """Of this worker, if it is a spout before state."""


@dataclass
class Fatal:
    """A worker that cannot run: `open` or `prepare` raised."""

    worker: int
    text: str


#: A hash of text that is the same in all processes: Spark's have no common seed of `hash`.
_text_hash = lru_cache(131_072)(stable_hash)


class Watched(Outbox):
    """An outbox that sees exceptions, of tuples that belong to no tree too."""

    __slots__ = ("places", "raised")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.raised: list[Failure] = []
        self.places: list[str] = []
        """Where in the user's code each of them was raised."""

    def fail_run(self, run: Run, failure: Failure) -> None:
        self._see(failure)
        super().fail_run(run, failure)

    def fail_roots(self, roots: Iterable[int], failure: Failure) -> None:
        self._see(failure)
        super().fail_roots(roots, failure)

    def _see(self, failure: Failure) -> None:
        """Note an exception, once: it may fail all rows of a batch."""
        if failure.reason == EXCEPTION and not (self.raised and self.raised[-1] is failure):
            self.raised.append(failure)
            self.places.append(where_of(sys.exception()))


class OneByOne(OpenMessages):
    """Open messages of which each has an entry of its own, also those of a batch: the entries are stored.

    A batch that is undone acks nothing, so the set-up is at fault only if nearly all of its messages raised."""

    __slots__ = ("others", "raised")

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.raised = self.others = 0

    def stops(self, at_limit: bool = False) -> bool:
        return self.raised >= 10 * self.others and super().stops(at_limit)

    @property
    def add_block(self) -> None:
        return None


@dataclass
class HostTasks:
    """What a host is given."""

    layout: Layout
    name: str
    state_root: str | None


Output = tuple[int, bytes]
"""A parcel, pickled, and the worker that it is for."""


class Host:
    """One worker, for one batch."""

    def __init__(self, around: HostTasks, worker: int, turn: HostTurn, state: WorkerState | None) -> None:
        """Raises TaskCrashed if `open` or `prepare` does."""
        self.around = around
        self.worker = worker
        self.turn = turn
        self.nonce = secrets.randbits(62)
        self._state = state
        self._started_ns = time.monotonic_ns()
        self._layout = around.layout
        self._spec = self._layout.spec_of(worker)
        self._task = self._layout.task_of(worker)
        self._saved_metrics = {(kind, name): data for kind, name, data in state.metrics} if state else {}
        self._metrics = UserMetrics(self._allocate)
        self._failures = FailureLog(self.now_ns)
        if state is not None:
            self._failures.load(state.failures)
        self.errors: list[tuple[str, int, str]] = []
        self.letters: list[tuple[str, int, str, Any, Any, Failure]] = []
        self.life: Life = life_of(self._spec.component, turn.settled)
        self._pending: OneByOne | None = None
        self._fate, self._acker, self._trees = self._load_tracking()
        self.outbox: Watched = Watched()
        self._raised_in_call: list[str] = []
        self._stopped = ""
        self._dry = True
        self.core = self._build()
        self._emitted_before = self._emits()
        self._fresh_before = frozenset(self._trees)

    # ---- time ----

    def now_ns(self) -> int:
        return self.turn.clock_ns + time.monotonic_ns() - self._started_ns

    # ---- bringing it back ----

    def _build(self) -> WorkerCore:
        layout, state = self._layout, self._state
        peers = Peers(layout.plan.n_workers, self.worker)
        for index in range(layout.plan.n_workers):
            peers.update(index, 1, True)
        none = [0] * len(ACCOUNT_COLUMNS)
        words = none if state is None else list(state.stats.get("account", none))
        abandoned = words[ABANDONED]
        surroundings = Surroundings(
            topology_name=self.around.name, worker=layout.plan.worker_names[self.worker], attempt=1, now_ns=self.now_ns,
            state_root=self.life.state_root(self.around.state_root), report_error=self._report_error,
            dead_letter=self._dead_letter, copy=self._copy, metrics=self._metrics, threads=False, timed=False,
            note_failures=self._failures.note, stop=self._stop,
            account=lambda task: words, untracked=list(state.untracked) if state else None,
            text_hash=_text_hash, parts=replace(
                PRODUCT, outbox=lambda edges: self.outbox, acker=lambda: self._acker, pending=self._open_messages
            ),
        )
        # Exceptions of bolts are counted here, so that a batch shows all tuples that raise and not the first one only.
        config = layout.config if self._spec.is_spout else layout.config.replace(on_error="fail")
        assembler = Assembler(layout.topology, layout.plan, config, self.worker, peers, surroundings)
        core = assembler.build()
        # Not abandoned: they are in the table.
        words[ABANDONED] = abandoned
        if self._pending is not None:
            self._pending.attempts.owe(-self._pending.attempts.owed)
        if state is not None:
            self._restore(core, state)
        return core

    def _copy(self, spec: ComponentSpec) -> Any:
        user = pickle.loads(cloudpickle.dumps(spec.component))
        stored = None if self._state is None else self._state.life
        inner = users_of(user)
        self.life.attach(user if type(user) is IdentifiedSpout else inner, stored)
        if type(user) is GatheringTask:
            user = inner  # a batch is what it gathers
        return user

    def _allocate(self, component: str, task: int, kind: str, name: str, size: int) -> memoryview:
        return memoryview(bytearray(self._saved_metrics.get((kind, name), bytes(size))))

    def _load_tracking(self) -> tuple[Fate | None, Acker, dict[int, Any]]:
        if self._state is None or not self._state.tracking:
            return None, Acker(), {}
        fate, acker, trees = pickle.loads(self._state.tracking)
        return fate, acker, trees

    def _open_messages(
        self, task: int, stats: SpoutStats, timeout_ns: int, fate: Fate, ports: Ports
    ) -> OpenMessages:
        """As the product's, with the fate of the messages before. Answers come between batches only, so the clock of
        messages stands still in a batch, and a message's time begins when its own batch has ended: a batch may take
        longer than the timeout."""
        ports.now_ns = lambda: self.turn.clock_ns
        if self._fate is not None:
            self._fate.attempts.forgot = fate.attempts.forgot
            fate = self._fate
        self._pending = made = OneByOne(task, stats, timeout_ns, fate, ports)
        made.trees.update(self._trees)
        for root in self._state.fresh if self._state is not None else ():
            made.reset(root)
        return made

    def _restore(self, core: WorkerCore, state: WorkerState) -> None:
        stats = core.stats[self._task]
        for name, value in state.stats.items():
            if name == "histogram":
                stats.histogram[:] = value
            elif name != "account":
                setattr(stats, name, value)
        emitter = core.emitters[self._task]
        for stream, count in state.emitted.items():
            emitter.streams[stream].emitted = count
        for bolt in core.bolt_tasks.values():
            if state.tick_at_ns:
                bolt.ticks_at_ns = state.tick_at_ns
        for spout in core.spout_tasks.values():
            spout.active = core.active = state.active

    # ---- a batch ----

    def begin(self) -> None:
        """A spout: have what was lost fail, before it hears of anything else."""
        if not self.turn.undone or self._state is None or self._pending is None:
            return
        name = self._layout.plan.worker_names[self.worker]
        for root in self._state.fresh:
            if root in self._pending.trees:
                self._pending.others += 1
                self.core.outbox.fail_roots((root,), Failure(WORKER_DIED, worker=name, error=ANOTHER_TUPLE))

    def charge(self, parcel: Parcel) -> None:
        """A parcel of the batch that was undone: only who raised counts. Call it before `begin`."""
        raised = {root: failure for root, failure in parcel.fails if failure.reason == EXCEPTION}
        if self._pending is not None:
            self._pending.raised += len(raised)
        self.core.tracking.last_words(raised)

    def receive(self, parcel: Parcel) -> Iterator[Output]:
        """Take in a parcel and process it."""
        self.core.receive(parcel, lambda: None)
        yield from self._run_bolts()

    def spout(self) -> Iterator[Output]:
        """Have a spout answered, and let it emit."""
        core, turn = self.core, self.turn
        self._guard(core.tracking.settle)
        self._guard(lambda: core.set_active(turn.active))
        dry = 0
        while dry < DRY_TURNS and not self._raised_in_call:
            before = self._emits()
            left = turn.quota - (before - self._emitted_before)
            worked = self._guard(partial(self._run_spout, left))
            self._guard(core.tracking.settle)
            core.pressure.end_turn()
            if core.outbox.rows_there >= FLUSH_TUPLES:
                yield from self._flush()
            emits = self._emits()
            dry = 0 if emits > before else dry + 1
            if not turn.active or (not worked and is_drained(self.core)):
                break
            if emits - self._emitted_before >= turn.quota:
                self._dry = False
                break
        yield from self._flush()

    def _run_spout(self, emits: int) -> bool:
        spouts, active = self.core.spouts, self.core.active
        worked = sum(spout.run(min(emits, spout.most_emits) if active else 0) for spout in spouts) > 0
        self.core.write_journals()
        return worked

    def tick(self) -> Iterator[Output]:
        """A bolt: give it the ticks that are due."""
        self.core.run_spouts()
        yield from self._run_bolts()

    def _run_bolts(self) -> Iterator[Output]:
        core = self.core
        while self._guard(core.run_bolts):
            core.pressure.end_turn()
            if core.outbox.rows_there >= FLUSH_TUPLES:
                yield from self._flush()

    def end(self) -> Iterator[Output]:
        """Hand over the rest: tuples first, then acks and failures, merged over the batch."""
        yield from self._flush()
        tracking = self.core.tracking
        self._guard(tracking.say)
        for worker, acks in tracking.take_to_tell():
            tracking.put_in_parcel(worker, acks)
        self._guard(tracking.answer)
        yield from self._flush()

    def close(self) -> list[str]:
        """Close the tasks; the errors that they raised."""
        return [str(crash) for crash in close_tasks(self.core)]

    def _flush(self) -> Iterator[Output]:
        outgoing = self.core.outgoing
        for worker in outgoing.close():
            while outgoing.has(worker):
                parcel = outgoing.take(worker)
                try:
                    data = pickle.dumps(parcel, 5)
                except BaseException as error:  # of users' values
                    if (crash := self.core.not_sent(worker, parcel, error)) is not None:
                        self._raised_in_call.append(str(crash))
                    continue
                yield worker, data

    def _guard(self, call: Callable[[], Any]) -> Any:
        """Call into users' code that has no tuple at hand, such as `next_tuple`."""
        try:
            return call()
        except TaskCrashed as crash:
            self._raised_in_call.append(str(crash))
            return False

    def _emits(self) -> int:
        return sum(task.collector.emitted for task in self.core.spout_tasks.values())

    # ---- what it has become ----

    @property
    def raised(self) -> list[str]:
        """Exceptions by which a worker of ours would end."""
        crashes = self._layout.config.on_error == "crash"
        outbox = self.outbox
        pairs = zip(outbox.raised, outbox.places, strict=True)
        own = [f"{failure} {place}".rstrip() for failure, place in pairs] if crashes else []
        return self._raised_in_call + own

    @property
    def may_close(self) -> bool:
        """True if a spout has nothing more to do: it is exhausted or not active, and nothing is pending."""
        pending = any(len(task.pending) for task in self.core.spout_tasks.values())
        return is_drained(self.core) or (not self.turn.active and self.core.quiet and not pending)

    def state(self) -> WorkerState:
        """What the worker is now."""
        core, task = self.core, self._task
        core.refresh_gauges()
        stats = core.stats[task]
        kept = {name: getattr(stats, name) for name in TASK_COUNTERS} | {"histogram": list(stats.histogram)}
        tracking, active = b"", False
        fresh: tuple[int, ...] = ()
        if self._pending is not None:
            kept["account"] = list(stats.account)  # type: ignore[attr-defined]
            for name in ACCOUNT_COLUMNS:
                del kept[name]
            tracking = self._dump_tracking()
            fresh = tuple(root for root in self._pending.trees if root not in self._fresh_before)
            active = core.active
        ticks = [bolt.ticks_at_ns for bolt in core.bolt_tasks.values() if bolt.tick_ns]
        return WorkerState(
            self.nonce, self.life.store(), kept,
            {name: stream.emitted for name, stream in core.emitters[task].streams.items()}, list(core.untracked),
            [(one.kind, one.name, bytes(one.memory)) for one in self._metrics.readings()], self._failures.failures(),
            ticks[0] if ticks else 0, tracking, fresh, active,
        )

    def _dump_tracking(self) -> bytes:
        assert self._pending is not None
        fate = self._pending.fate
        forgot, fate.attempts.forgot = fate.attempts.forgot, _nothing
        try:
            return pickle.dumps((fate, self._acker, self._pending.trees), 5)
        finally:
            fate.attempts.forgot = forgot

    def report(
        self, heard: dict[int, int], rows: int, closed: bool, close_errors: list[str], said: str
    ) -> WorkerReport:
        """What the driver is to hear. After `state`."""
        core = self.core
        self._metrics.sample(self._report_error)
        [reading] = [one._replace(worker=WORKER) for one in readings_of(core) if one.task == self._task]
        return WorkerReport(
            worker=self.worker, nonce=self.nonce, heard=heard, rows=rows, reading=reading,
            is_spout=bool(core.spout_tasks), finished=bool(core.spout_tasks) and is_drained(core), dry=self._dry,
            closed=closed, raised=self.raised, errors=self.errors, letters=self.letters, stopped=self._stopped,
            failures=self._failures.failures(),
            metrics=[
                (one.component, one.task, one.kind, one.name, bytes(one.memory)) for one in self._metrics.readings()
            ],
            close_errors=close_errors, said=said, emitted=self._emits() - self._emitted_before,
            left_out=self.life.left_out, settled=self.life.settled(),
        )

    # ---- what the core tells ----

    def _report_error(self, component: str, task: int, text: str) -> None:
        self.errors.append((component, task, text))

    def _stop(self, why: str) -> None:
        self._stopped = why

    def _dead_letter(self, component: str, task: int, message_id: Any, values: Any, failure: Failure) -> None:
        self.letters.append((component, task, repr(message_id)[:200], message_id, values, failure))


def _nothing(*arguments: Any) -> None: ...
