"""State that counts each record once, in simulated time: bolts with state, windows and sinks, whose workers die between
turns, before and after each commit and in the middle of what a sink writes, and whose commits fail as on a full disk.

`run_life` raises InvariantBrokenError if a result is wrong in the end, or there is no end. STATE_MUTANTS switch off one
part of the promise each; a life must notice.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from squall import ExactSink, Topology, Tuple
from squall.engine.api.config import Config
from squall.engine.build import weave
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ClusterError, FailedTuple
from squall.engine.state import commits
from squall.engine.state.held_emits import HeldEmits
from squall.engine.state.reading import read_component
from squall.engine.state.records import absorbed, lineage, settled
from squall.engine.state.records.absorbed import Absorbed, Group
from squall.engine.state.records.record_store import SharedFile
from squall.engine.state.sink_task import SinkTask
from squall.engine.state.task_store import Reader, TaskStore
from squall.engine.state.windowing.event_time import EventTime
from squall.engine.state.windowing.window_task import WindowTask
from squall.testing import SimulatedCluster
from tests.process import state_parts as parts
from tests.process import window_parts as windowed
from tests.sim import moving_parts
from tests.sim.control import Control
from tests.sim.invariants import COUNTED_WRONG, NEVER_ENDED, InvariantBrokenError
from tests.sim.moving_parts import Moving
from tests.unit.wired import wired

TEXTS, STEPS = 40, 1_000
EVENTS = 5 * TEXTS
DEATHS, ERRORS = 6, 3
"""Of a life; and commits that fail, if that ends their worker. Else they fail up to the end."""
_close = TaskStore.close


# ---- lives ----


class Lines(ExactSink):
    """Writes tuples as lines of a file for each task, at the position that is told."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def prepare(self, conf: Any, context: Any) -> None:
        self.path = self.root / f"part-{context.task_index}.txt"
        self.path.touch()

    def position(self) -> int:
        return self.path.stat().st_size

    def commit(self, number: int, rows: Sequence[Tuple], position: int) -> None:
        with self.path.open("r+") as file:
            file.truncate(position)
            file.seek(position)
            file.writelines(f"{json.dumps(tup.values)}\n" for tup in rows)


def _words(split: Any, count: Any, root: str) -> Topology:
    return parts.topology(parts.Texts(TEXTS), split(), count())


def _windows(root: str) -> Topology:
    bolt = windowed.Folded().with_sliding_window(secs=2, slide_secs=0.5).with_key("user").with_timestamp_field("at")
    return windowed.windows(EVENTS, bolt.with_lag(secs=0.1))


def _sinks(root: str) -> Topology:
    return wired(
        events=(windowed.Events(EVENTS), 2),
        pass_on=(windowed.PASS_ON, 2, "shuffle events"),
        lines=(Lines(root), 2, "fields pass_on number"),
    ).build()


def _right_words(root: Path) -> bool:
    totals = read_component(root, "total")["totals"]
    return Counter(read_component(root, "count")) == Counter(totals) == parts.expected(TEXTS)


def _right_windows(root: Path) -> bool:
    return Counter(read_component(root, "keep")) == windowed.sliding_results(EVENTS)


def _right_lines(root: Path) -> bool:
    lines = Counter(line for path in root.glob("part-*.txt") for line in path.read_text().splitlines())
    return lines == Counter([json.dumps(windowed.event(number)) for number in range(EVENTS)] * 2)


def _right_moved(root: Path) -> bool:
    results = [json.dumps((*window, count)) for window, count in moving_parts.expected().items()]
    return Counter(read_component(root, "keep")) == Counter(results)


ROWS, BATCHES, WINDOWS, SINKS, MOVED = range(5)
KINDS: list[tuple[Callable[[str], Topology], Callable[[Path], bool]]] = [
    (partial(_words, parts.Split, parts.Count), _right_words),
    (partial(_words, parts.SplitBatch, parts.CountBatch), _right_words),
    (_windows, _right_windows),
    (_sinks, _right_lines),
    (lambda root: moving_parts.topology(), _right_moved),
]
"""How a topology is made, and whether its results are right."""


class _Died(BaseException):
    """The worker dies here."""


class _Faults:
    """Has commits fail, and a worker die before or after some."""

    def __init__(self, rng: random.Random, crashes: bool) -> None:
        """`crashes`: whether what a task raises ends its worker; if not, no worker dies within a commit."""
        self._rng, self._crashes, self.deaths, self.errors = rng, crashes, 0, 0
        self._rate = 0.04 if crashes else rng.choice([0.02, 0.3])
        self._fails_in = ""
        """Where the commit at hand fails."""
        self.opened: list[Any] = []
        """Stores and readers: the process lives on when its workers die."""

    def dies(self) -> bool:
        """Return True if a death is due."""
        due = self.deaths > 0 and self._rng.random() < 0.02
        self.deaths -= due
        return due

    def _dies_here(self) -> bool:
        return self._crashes and self.dies()

    def _fails(self) -> bool:
        due = self.errors > 0 and self._rng.random() < self._rate
        self.errors -= due
        return due

    def _fail_in(self, place: str) -> None:
        if self._fails_in == place:
            self._fails_in = ""
            raise ClusterError("the state cannot be written: database or disk is full")

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        begin, write, end, commit = TaskStore.begin, TaskStore.write, TaskStore.end, Lines.commit

        def failing_begin(store: TaskStore) -> None:
            self._fails_in = self._rng.choice(["begin", "write", "end", "end", "end"]) if self._fails() else ""
            self._fail_in("begin")
            begin(store)

        def failing_write(store: TaskStore, statement: str, rows: Any) -> None:
            self._fail_in("write")
            write(store, statement, rows)

        def dying_end(store: TaskStore) -> None:
            if self._dies_here():
                raise _Died
            if self._fails_in == "end":
                store.undo()
            self._fail_in("end")
            end(store)
            if self._dies_here():
                raise _Died

        def torn_commit(sink: Lines, number: int, rows: Sequence[Tuple], position: int) -> None:
            dies, fails = self._dies_here(), self._fails()
            if dies or fails:
                commit(sink, number, rows[: self._rng.randint(0, len(rows))], position)
                raise _Died if dies else FailedTuple("away")
            commit(sink, number, rows, position)

        with contextlib.ExitStack() as patches:
            patches.callback(self.close_from, 0)
            patches.enter_context(patch.multiple(TaskStore, begin=failing_begin, write=failing_write, end=dying_end))
            patches.enter_context(patch.object(Lines, "commit", torn_commit))
            for kind in (TaskStore, Reader, SharedFile):
                patches.enter_context(patch.object(kind, "__init__", self._noting(kind.__init__)))
            yield

    def close_from(self, number: int) -> None:
        """Close what was opened after so many others, as the death of a process does."""
        for opened in self.opened[number:]:
            (_close if isinstance(opened, TaskStore) else type(opened).close)(opened)

    def _noting(self, init: Any) -> Any:
        def noting_init(made: Any, *arguments: Any) -> None:
            init(made, *arguments)
            self.opened.append(made)

        return noting_init


def kind_of(seed: int) -> int:
    """What is in the topology of a life."""
    return seed % len(KINDS)


def run_life(seed: int) -> None:
    """Run one topology to its end. InvariantBrokenError if a result is wrong, or it does not end."""
    rng = random.Random(seed)
    make, is_right = KINDS[kind_of(seed)]
    on_error = rng.choice(["crash", "fail"])
    faults = _Faults(rng, on_error == "crash")
    limits = {"max_crashes": None, "fail_fast": False}  # no message, and no topology, is to blame
    config = Config(workers=2, seed=seed, message_timeout_secs=2.0, on_error=on_error, **limits)
    with tempfile.TemporaryDirectory() as root, faults.in_force():
        cluster = SimulatedCluster(make(root), config, state_root=root, record=False)
        faults.deaths, faults.errors = DEATHS, ERRORS if on_error == "crash" else STEPS
        for _ in range(STEPS):
            if cluster.drained:
                break
            _step(cluster, rng, faults)
            if kind_of(seed) == MOVED and rng.random() < 0.03:
                _move(Path(root, "moving-shared", "moves"))
        else:
            raise InvariantBrokenError(NEVER_ENDED, f"state seed {seed}")
        faults.deaths = faults.errors = 0
        cluster.close()
        if not is_right(Path(root)):
            raise InvariantBrokenError(COUNTED_WRONG, f"state seed {seed}")


def _move(file: Path) -> None:
    """Have the partitions of a source read by the other task each."""
    if file.parent.exists():
        file.write_text(str(1 + int(file.read_text() if file.exists() else 0)))


def _step(cluster: SimulatedCluster, rng: random.Random, faults: _Faults) -> None:
    try:
        # Floors are stored, and looked at, every 50 ms: also with messages under way.
        if not cluster.step() or rng.random() < 0.2:
            cluster.clock.advance_ns(60_000_000)
    except TaskCrashed as crash:
        _replace(cluster, cluster.plan.task_worker[crash.task], faults)
    if faults.dies():
        _replace(cluster, rng.randrange(2), faults)


def _replace(cluster: SimulatedCluster, worker: int, faults: _Faults) -> None:
    for _, _, user in cluster.core(worker).users():
        # As the death of a process does; what is not committed is gone.
        if (commits := getattr(user, "commits", None)) is not None:
            _close(commits.store)
    cluster.kill(worker)
    while cluster.workers[worker] is None:
        opened = len(faults.opened)
        try:
            cluster.restart(worker)
        except TaskCrashed:
            faults.close_from(opened)


# ---- mutants ----


@dataclass(frozen=True)
class StateMutant(Control):
    """A part of the promise that is switched off."""

    kind = "state"
    most = 2_000
    owner: Any
    name: str
    other: Any
    """What stands there instead."""
    kinds: tuple[int, ...] = (ROWS, BATCHES)
    """The lives that must notice."""

    def run(self, seed: int, is_off: bool = True) -> None:
        if kind_of(seed) in self.kinds:
            with patch.object(self.owner, self.name, self.other) if is_off else contextlib.nullcontext():
                run_life(seed)


def _all_newest(its: settled.ReadPartition, now_ns: int) -> Any:
    return [(max(0, its.begun), its.newest + 1)], []


def _all_alike(its: lineage.Lineage, firsts: Iterator[int], counts: Sequence[int]) -> list[int]:
    return [first for first, count in zip(firsts, counts, strict=True) for _ in range(count)]


def _load_nothing(its: Absorbed, number: int, content: Any, load: Any = Absorbed.load) -> None:
    load(its, number, ([], []))


class LateStore(TaskStore):
    """A commit reaches the disk with the next one: acks and emits are gone before."""

    waits = False

    def begin(self) -> None:
        self._end_late()
        super().begin()

    def end(self) -> None:
        self.waits = True

    def undo(self) -> None:
        if not self.waits:
            super().undo()

    def close(self) -> None:
        self._end_late()
        super().close()

    def _end_late(self) -> None:
        if self.waits:
            self.waits = False
            super().end()


def _take_and_send(out: HeldEmits, rows: Sequence[int], take: Any = HeldEmits.take) -> Any:
    made = take(out, rows)
    out.send()
    return made


class HastySink(SinkTask):
    """Rows whose commit fails stay, and are written all the same."""

    def write(self, store: TaskStore) -> None:
        super().write(store)
        if self._prepared is not None:
            self._number, self._outside = self._prepared[0], self._prepared


class OutsideFirst(SinkTask):
    """What is not committed yet is written."""

    def write(self, store: TaskStore) -> None:
        super().write(store)
        if self._prepared is not None:
            self._outside, self._prepared = self._prepared, None
            self._write_outside()


class ForgetfulSink(SinkTask):
    """What may not be outside is not written again after a death."""

    def prepare(self, conf: Any, context: Any) -> None:
        super().prepare(conf, context)
        self._outside = None


class HastyEnd(WindowTask):
    """An end is taken for stored before it is."""

    def write(self, store: TaskStore) -> None:
        self._told = self._activity
        super().write(store)


class KeptWindows(WindowTask):
    """Windows stay as a commit that failed has left them."""

    def undone(self) -> None:
        self._results = []


class DoubleResults(WindowTask):
    """Results of a commit that failed stay."""

    def undone(self) -> None:
        kept = self._results
        super().undone()
        self._results = kept


def _newest_of_all(its: EventTime, sources: Any, heard: Any, now: int, look: Any = EventTime.look) -> int:
    """The time of the newest partition, as if a task were one."""
    if not all(source.ended for source in sources) and heard:
        its.watermark = max(its.watermark, *(each.time for each in heard.values()))
        return its.watermark
    return int(look(its, sources, heard, now))


def _of_first_source(its: EventTime, sources: Any, heard: Any, now: int, look: Any = EventTime.look) -> int:
    """The time of one of two sources, as if nothing were joined with it."""
    return int(look(its, sources[:1], heard, now))


_WRONG = COUNTED_WRONG

STATE_MUTANTS = (
    StateMutant("time by source", _WRONG, EventTime, "look", _of_first_source, (MOVED,)),
    StateMutant("identities whichever task reads", _WRONG, Moving, "record_identity", "task", (MOVED,)),
    StateMutant("time by partition", _WRONG, EventTime, "look", _newest_of_all, (MOVED,)),
    StateMutant("identities in the commit", _WRONG, Group, "packed", lambda its: pickle.dumps(([], []))),
    StateMutant("identities of earlier lives", _WRONG, Absorbed, "load", _load_nothing),
    StateMutant("a look at what is known", _WRONG, Absorbed, "known", lambda its, identities: None),
    StateMutant("forgetting only what is settled", _WRONG, absorbed.Era, "is_settled", lambda its, settled: True),
    StateMutant("floors below what is open", _WRONG, settled.ReadPartition, "settle", _all_newest),
    StateMutant("numbers of emits", _WRONG, lineage.Lineage, "children_of", _all_alike),
    StateMutant("emits that are repeated", _WRONG, HeldEmits, "repeat", lambda its, identities, known: None),
    StateMutant("acks after the commit", _WRONG, commits, "TaskStore", LateStore),
    StateMutant("emits after the commit", _WRONG, HeldEmits, "take", _take_and_send, (BATCHES,)),
    StateMutant("rows of a sink after their commit", _WRONG, weave, "SinkTask", HastySink, (SINKS,)),
    StateMutant("writing outside after the commit", _WRONG, weave, "SinkTask", OutsideFirst, (SINKS,)),
    StateMutant("writing again after a death", _WRONG, weave, "SinkTask", ForgetfulSink, (SINKS,)),
    StateMutant("windows without a commit that failed", _WRONG, weave, "WindowTask", KeptWindows, (WINDOWS,)),
    StateMutant("results without a commit that failed", _WRONG, weave, "WindowTask", DoubleResults, (WINDOWS,)),
    StateMutant("an end of windows that is stored", NEVER_ENDED, weave, "WindowTask", HastyEnd, (WINDOWS,)),
)
