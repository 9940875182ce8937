"""One level of a topology as a function over rows: what Spark calls for each partition of each batch.

::

    rows of the level above, and its own states ──► run_slot ──► rows for the levels below, states, reports
                                                       └──► rows that are for others pass through

Guarantees: a worker runs once per call, whether rows come for it or not; it tells each of its readers that it is done,
so that a reader knows whether it has heard all of every feeder, and of which execution. A nonce is drawn at each
execution of a worker for a batch: Spark may execute one again (a machine died), and rows of both must not be mixed.
Relies on rows coming in the order of kind, source and seq. Thread: its caller's; `sys.stdout` is the worker's
meanwhile.

Rows are opaque to Spark but for their address::

    level  slot   kind    source  seq  nonce  body
    2      0      PARCEL  3       0    8231   tuples of worker 3 for the first worker of level 2
    2      0      STATE   5       0    1178   what worker 5 is at the end of the batch
    -1     0      REPORT  5       0    1178   its counters
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import SquallError
from squall.engine.flow.parcel import Parcel
from squall.pipeline.on_spark.host import Fatal, Host, HostTasks, HostTurn, Output, WorkerReport, WorkerState
from squall.pipeline.on_spark.layout import Layout, lay_out

STATE, PARCEL, REPORT = range(3)
"""In the order in which a worker reads them."""
END = -1
"""The level of what no worker of this batch reads."""
SCHEMA = "level int, slot int, kind int, source int, seq int, nonce bigint, body binary"


class Row(NamedTuple):
    """One row."""

    level: int
    slot: int
    kind: int
    source: int
    """The worker that made it."""
    seq: int
    """Rows of one kind and source are read in this order."""
    nonce: int
    body: bytes


#: Most characters of a worker's output in a batch that are shown.
SAID_CHARACTERS = 65_536
#: The seq of the last row for a reader.
LAST = 2**31 - 1


@dataclass(frozen=True)
class Shared:
    """What every process needs to run any worker."""

    load: Callable[[], Topology]
    """Unpickles the topology, and makes its classes importable."""
    config: Config
    name: str
    launch: str
    """Of this run of it: the code may have changed since the last."""
    state_root: str | None


class StageLetter(NamedTuple):
    """The body of a PARCEL row."""

    last: bool
    """True if the sender is done; there may be no parcel then."""
    closed: bool
    """True if the sender has closed its task, and sends nothing any more."""
    parcel: bytes | None


_deployed: dict[str, HostTasks] = {}


def deploy(shared: Shared) -> HostTasks:
    """The topology in this process: loaded once, for one run at a time."""
    if shared.launch not in _deployed:
        _deployed.clear()
        layout = lay_out(shared.load(), shared.config)
        _deployed[shared.launch] = HostTasks(layout, shared.name, shared.state_root)
    return _deployed[shared.launch]


def run_slot(around: HostTasks, level: int, slot: int, turn: HostTurn, rows: Iterable[Row]) -> Iterator[Row]:
    """Run the worker of a slot for a batch; the rows for all others pass through."""
    layout = around.layout
    run: StageRun | None = None
    out = _Kept()
    before, sys.stdout = sys.stdout, out
    try:
        run = StageRun(around, layout.levels[level][slot], turn, out)
        for row in rows:
            if row.level == level:
                yield from run.take(row)
            else:
                yield row
        yield from run.end()
    except (TaskCrashed, SquallError) as error:
        fatal = Fatal(layout.levels[level][slot], str(error).partition("\n")[0])
        yield Row(END, 0, REPORT, fatal.worker, 0, 0, pickle.dumps(fatal, 5))
    finally:
        sys.stdout = before
        if run is not None:
            run.over()


class _Kept(io.StringIO):
    """Keeps what is printed, up to a limit."""

    def write(self, text: str) -> int:
        return super().write(text) if self.tell() < SAID_CHARACTERS else len(text)


class StageRun:
    """One worker's batch."""

    def __init__(self, around: HostTasks, worker: int, turn: HostTurn, out: _Kept) -> None:
        self._around = around
        self._layout: Layout = around.layout
        self._worker = worker
        self._turn = turn
        self._out = out
        self._is_spout = self._layout.spec_of(worker).is_spout
        self._state: WorkerState | None = None
        self._host: Host | None = None
        self._heard: dict[int, int] = {}
        self._closed: set[int] = set()
        self._seq = 0
        self._own_rows = 0

    @property
    def host(self) -> Host:
        if self._host is None:
            self._host = Host(self._around, self._worker, self._turn, self._state)
        return self._host

    def over(self) -> None:
        """Whatever happened."""
        if self._host is not None:
            self._host.life.end()

    def take(self, row: Row) -> Iterator[Row]:
        """Take in a row for this worker."""
        if row.kind == STATE:
            self._state = pickle.loads(row.body)
            return
        letter: StageLetter = pickle.loads(row.body)
        if letter.last:
            self._heard[row.source] = row.nonce
            if letter.closed:
                self._closed.add(row.source)
        if letter.parcel is None:
            return
        parcel: Parcel = pickle.loads(letter.parcel)
        if not self._is_spout:
            yield from self._rows(self.host.receive(parcel))
        elif self._turn.undone:
            self.host.charge(parcel)
        else:
            # Acks: their answers come with `spout`.
            yield from self._rows(self.host.receive(parcel))

    def end(self) -> Iterator[Row]:
        """All rows are in: finish the batch."""
        if self._state is not None and self._state.report is not None:
            yield from self._rest(self._state, self._state.report)
            return
        host = self.host
        if self._is_spout:
            host.begin()
            yield from self._rows(host.spout())
        else:
            yield from self._rows(host.tick())
        yield from self._rows(host.end())
        feeders = set(self._layout.feeders(self._worker))
        closes = self._turn.closing and not (host.raised or host.life.has_more) and (
            host.may_close if self._is_spout else feeders <= self._closed
        )
        state = host.state()
        close_errors = host.close() if closes or host.life.ends_with_batch else []
        report = host.report(self._heard, self._own_rows + 1, closes, close_errors, self._out.getvalue())
        if closes and self._turn.active:
            state.report = report
        yield from self._last_rows(state, report)

    def _rest(self, state: WorkerState, report: WorkerReport) -> Iterator[Row]:
        """Its task was closed in an earlier batch: it is as it was."""
        report = replace(
            report, heard=self._heard, rows=1, letters=[], errors=[], close_errors=[], said="", raised=[], emitted=0,
        )
        yield from self._last_rows(state, report)

    def _last_rows(self, state: WorkerState, report: WorkerReport) -> Iterator[Row]:
        layout, worker = self._layout, self._worker
        letter = pickle.dumps(StageLetter(True, report.closed, None), 5)
        for reader in layout.readers(worker):
            yield Row(layout.level_of[reader], layout.slot_of[reader], PARCEL, worker, LAST, state.nonce, letter)
        yield Row(
            layout.level_of[worker], layout.slot_of[worker], STATE, worker, 0, state.nonce, pickle.dumps(state, 5)
        )
        yield Row(END, 0, REPORT, worker, 0, state.nonce, pickle.dumps(report, 5))

    def _rows(self, outputs: Iterable[Output]) -> Iterator[Row]:
        layout = self._layout
        for target, data in outputs:
            self._seq += 1
            level = layout.level_of[target]
            if level <= layout.level_of[self._worker]:
                self._own_rows += 1
            body = pickle.dumps(StageLetter(False, False, data), 5)
            yield Row(level, layout.slot_of[target], PARCEL, self._worker, self._seq, self.host.nonce, body)


class Stage:
    """`mapInArrow` of one level."""

    def __init__(self, shared: Any, level: int, turn: HostTurn) -> None:
        """`shared`: a broadcast `Shared`."""
        self._shared = shared
        self._level = level
        self._turn = turn

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        names = list(Row._fields)
        types = [pyarrow.int32()] * 5 + [pyarrow.int64(), pyarrow.binary()]
        rows = (
            Row(*values) for batch in batches for values in zip(*(column.to_pylist() for column in batch), strict=True)
        )
        held: list[Row] = []
        size = 0
        shared: Shared = self._shared.value
        for row in run_slot(deploy(shared), self._level, context.partitionId(), self._turn, rows):
            held.append(row)
            size += len(row.body)
            if size > BATCH_BYTES:
                yield _record_batch(pyarrow, held, names, types)
                held, size = [], 0
        if held:
            yield _record_batch(pyarrow, held, names, types)


#: Bytes of rows that go to Spark at a time.
BATCH_BYTES = 4 << 20


def _record_batch(pyarrow: Any, rows: list[Row], names: list[str], types: list[Any]) -> Any:
    columns = [pyarrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(columns, names)
