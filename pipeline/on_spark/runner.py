"""Runs a topology on Spark: a streaming query whose every batch is one pass through the levels.

::

    query (rate-micro-batch: the clock) ── foreachBatch ──► states of the last batch
        for each level:  ∪ its states ──► repartitionById(slot) ──► sort ──► mapInArrow(stage)
        ──► Parquet in the checkpoint ──► reports ──► does the batch count? ──► control.pickle

Guarantees: what a batch did is kept whole or not at all (see `checkpoint` and `control`); a batch whose rows come from
several executions of a worker is run again; the driver holds reports and addresses, never tuples. Relies on
`squall.pipeline.session` for the session, and on Spark for moving rows, running tasks again and noticing dead machines.
Thread: the caller's waits; batches run on one of py4j's.
"""

from __future__ import annotations

import pickle
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.engine.api.config import Config
from squall.engine.api.topology import Topology
from squall.engine.errors import ClusterError
from squall.engine.report.run_report import RunReport
from squall.pipeline.on_spark.batch_control import (
    Control,
    after,
    doubts,
    leads_nowhere,
    letters_of,
    next_turn,
    report_of,
)
from squall.pipeline.on_spark.checkpoint import Checkpoint
from squall.pipeline.on_spark.host import Fatal, HostTurn, WorkerReport
from squall.pipeline.on_spark.layout import Layout, lay_out
from squall.pipeline.on_spark.stage import PARCEL, REPORT, SCHEMA, STATE, Shared, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Times that a batch is run again because executions of workers were mixed in it.
MOST_EXECUTIONS = 5
#: Pause after a batch in which nothing happened: retries and ticks are waited for.
FIRST_PAUSE_SECS, LAST_PAUSE_SECS = 0.05, 1.0
#: Rows that Spark gives to Python at a time: each may hold thousands of tuples.
ROWS_AT_ONCE = 64
#: How often the caller's `should_stop` is asked.
LOOK_SECS = 0.1

SETTINGS = {
    # Partitions are slots: none may be merged or split.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
    # A column of four numbers and an opaque value gains nothing from it, and it takes a second of the first batch.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
}


@dataclass(frozen=True)
class Tell:
    """Where news of the run go, one line each."""

    said: Callable[[str, str], None]
    """(task, line): what a component printed."""
    note: Callable[[str], None]
    """For the operator."""
    progress: Callable[[Control], None] = lambda control: None
    """Called again and again, also while a batch takes long."""


class SparkRun:
    """One run of a topology. `load`: unpickles it in any process, and makes its classes importable there."""

    def __init__(
        self, topology: Topology, config: Config, name: str, load: Callable[[], Topology], checkpoint: Checkpoint,
        tell: Tell, batch_rows: int | None = None,
    ) -> None:
        self.layout: Layout = lay_out(topology, config)
        self.name = name
        self.tell = tell
        self._checkpoint = checkpoint
        self._batch_rows = batch_rows
        self._shared = Shared(
            load, config, name, secrets.token_hex(8), str(checkpoint.state)
        )
        self._done = threading.Event()
        self._active = True
        self._stopped = False
        self._error: BaseException | None = None
        self._pause_secs = 0.0
        self._told_left_out: set[tuple[str, str]] = set()

    @property
    def control(self) -> Control:
        return self._checkpoint.control

    @property
    def is_done(self) -> bool:
        """True if earlier runs of this checkpoint have done everything."""
        return self.control.closed and self.control.finished

    def report(self) -> RunReport:
        """The report of the run so far, with what earlier runs of this checkpoint did."""
        return report_of(self.control, self.name)

    # ---- the caller's thread ----

    def run(self, spark: SparkSession, should_drain: Callable[[], bool], should_stop: Callable[[], bool]) -> RunReport:
        """Run until all is done, or `should_stop()`. Raises what a batch raised."""
        # The session may be another's.
        spark = spark.newSession()
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        self._broadcast = spark.sparkContext.broadcast(self._shared)
        clock = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=1, numPartitions=1, startTimestamp=0
        ).load()
        query = clock.writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", _uri(self._checkpoint.spark)
        ).start()
        try:
            while not self._done.wait(LOOK_SECS) and query.isActive:
                self.tell.progress(self.control)
                if self._active and should_drain():
                    self._active = False
                if should_stop():
                    break
        finally:
            self._stopped = True
            self._done.set()
            query.stop()
        if self._error is not None:
            if isinstance(self._error, ClusterError):
                self._error.report = self.report()
            raise self._error
        if (failed := query.exception()) is not None and not self.control.closed:
            raise failed
        return self.report()

    # ---- Spark's thread ----

    def _batch(self, clock: DataFrame, spark_batch: int) -> None:
        """Run a batch. Called by Spark."""
        # Done already: the driver died between our commit and Spark's.
        if spark_batch <= self.control.spark_batch or self._done.is_set():
            return
        try:
            self._run_batch(clock.sparkSession, spark_batch)
        except BaseException as error:
            if not self._stopped:
                self._error = error
            self._done.set()
            raise

    def _run_batch(self, spark: SparkSession, spark_batch: int) -> None:
        control = self.control
        self._pause_secs = min(max(2 * self._pause_secs, FIRST_PAUSE_SECS), LAST_PAUSE_SECS) if control.idle else 0.0
        if self._done.wait(self._pause_secs):
            return
        # The topology's clock must see the pause.
        clock_ns = control.clock_ns + round(self._pause_secs * 1e9)
        began = time.monotonic()
        for _ in range(MOST_EXECUTIONS):
            turn = next_turn(control, clock_ns, self._active, self._batch_rows)
            path = self._checkpoint.new_batch(turn.number)
            self._rows_after(spark, control, turn).write.parquet(_uri(path))
            reports, rows = _read_reports(path)
            for report in reports.values():
                if isinstance(report, Fatal):
                    raise ClusterError(f"{self.name} cannot run: {report.text}")
            why = doubts(self.layout, reports, rows)  # type: ignore[arg-type]
            if not why:
                break
            self.tell.note(f"batch {turn.number} is run again: {why[0]}")
        else:
            raise ClusterError(f"batch {turn.number} was run {MOST_EXECUTIONS} times, and {why[0]}")
        self._commit(control, turn, reports, path, spark_batch, time.monotonic() - began)  # type: ignore[arg-type]

    def _commit(
        self, control: Control, turn: HostTurn, reports: dict[int, WorkerReport], path: Path, spark_batch: int,
        took_secs: float,
    ) -> None:
        now = after(control, turn, reports, path.name, spark_batch, took_secs, self.layout)
        letters = letters_of(reports.values())
        self._checkpoint.done(now, letters)
        names = self.layout.plan.worker_names
        for worker, report in sorted(reports.items()):
            who = names[worker].removeprefix("spark:")
            for line in report.said.splitlines():
                self.tell.said(who, line)
            self._tell_errors(report)
            for text in report.left_out:
                if (who, text) not in self._told_left_out:
                    self._told_left_out.add((who, text))
                    self.tell.note(f"{who}: attribute {text} is not stored with batches: prepare makes it again")
            for text in report.raised[:1]:
                self.tell.note(f"batch {turn.number} is undone: {text}")
        for letter in letters[:MOST_ERRORS]:
            self.tell.note(
                f"dead letter of {letter['spout']}: message {letter['message_id']} after {letter['attempt']} attempts: "
                f"{letter['reason']} in {letter['component']}: {letter['error']}"
            )
        if now.closed:
            self._done.set()
        for why in [report.stopped for report in reports.values() if report.stopped]:
            raise ClusterError(f"topology {self.name!r} has stopped: {why}")
        if why := leads_nowhere(now):
            raise ClusterError(f"{self.name} {why}")

    def _tell_errors(self, report: WorkerReport) -> None:
        """Tell of what components reported: what each tuple raises once, and what undid the batch not here."""
        times = Counter(report.errors)
        for component, task, text in list(times)[:MOST_ERRORS]:
            if not any(text in raised for raised in report.raised):
                count = times[component, task, text]
                often = f" ({count} times)" if count > 1 else ""
                self.tell.note(f"error reported by {component}[{task}]: {text}{often}")

    def _rows_after(self, spark: SparkSession, control: Control, turn: HostTurn) -> DataFrame:
        """The rows at the end of a batch, as a plan that nothing has run yet."""
        from pyspark.sql import functions

        rows: DataFrame | None = None
        for level, workers in enumerate(self.layout.levels):
            own = self._stored(spark, control, level)
            rows = own if rows is None else rows.unionByName(own)
            slot = functions.pmod("slot", functions.lit(len(workers)))
            stage: Any = Stage(self._broadcast, level, turn)
            spread = rows.repartitionById(len(workers), slot).sortWithinPartitions("kind", "source", "seq")
            rows = spread.mapInArrow(stage, SCHEMA)
        assert rows is not None
        return rows

    def _stored(self, spark: SparkSession, control: Control, level: int) -> DataFrame:
        """What the last batch left for a level."""
        at = control.bolts_at if level else control.spouts_at
        if not at:
            return spark.createDataFrame([], SCHEMA)
        # A name is a name: without the option, its brackets and stars would be patterns.
        reader = spark.read.schema(SCHEMA).option("__globPaths__", "false")
        stored = reader.parquet(_uri(self._checkpoint.at(at)))
        return stored.filter((stored.level == level) & stored.kind.isin(STATE, PARCEL))


#: Errors of a worker, and dead letters, that are told of a batch.
MOST_ERRORS = 20


def _uri(path: Path) -> str:
    """As Hadoop reads it, which decodes nothing."""
    return f"file://{path}"


def _read_reports(path: Path) -> tuple[dict[int, WorkerReport | Fatal], Counter[tuple[int, int]]]:
    """The reports of a batch, and how many other rows there are of each worker and nonce."""
    import pyarrow.dataset

    rows = pyarrow.dataset.dataset(path, format="parquet")
    reports: dict[int, WorkerReport | Fatal] = {}
    for body in rows.to_table(columns=["body"], filter=pyarrow.dataset.field("kind") == REPORT)["body"].to_pylist():
        report = pickle.loads(body)
        reports[report.worker] = report
    counts: Counter[tuple[int, int]] = Counter()
    table = rows.to_table(columns=["source", "nonce"], filter=pyarrow.dataset.field("kind") != REPORT)
    counts.update(zip(table["source"].to_pylist(), table["nonce"].to_pylist(), strict=True))
    return reports, counts
