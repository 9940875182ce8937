"""Executes batches for bolts that take them whole.

Guarantees
    * The rows of a batch are acked when `execute_batch` has returned, those that it failed excepted: each run on its
      own, as if its rows had been executed one by one.
    * An exception fails every tree at hand. It accuses none of them if there are several: each may be the cause
      (`Failure.among`), so each is tried alone if it happens again.

Thread: that of the executor.
"""

from __future__ import annotations

from collections.abc import Collection

from squall.engine.api.columns import ColumnBatch, Columns
from squall.engine.api.failure import EXCEPTION, FAILED
from squall.engine.api.stream import TICK_STREAM
from squall.engine.core.executor import BoltExecutor, BoltTask
from squall.engine.errors import FailedTuple
from squall.engine.flow.batch import Batch
from squall.engine.flow.batch_collector import BatchCollector
from squall.engine.foreign.text import line_of_error, text_of_error


def process_whole(executor: BoltExecutor, task: BoltTask, batch: Batch) -> None:
    """Execute the rows of a batch. Raises TaskCrashed."""
    collector: BatchCollector = executor.collectors[task.task]
    collector.begin(batch)
    given = ColumnBatch(Columns.of(batch.rows), executor.source_of(batch.source, batch.stream))
    error: BaseException | None = None
    try:
        if (value := task.execute(given, collector)) is not None:
            task.returned(value)
    except BaseException as raised:
        # Also `sys.exit`: it must not end the worker by itself, without a report.
        error = raised
    if error is None:
        failed: Collection[int] = _fail_rows(executor, task, batch, collector)
    else:
        failed = range(len(collector.runs))
        _fail_all(executor, task, batch, error)
    _ack(executor, task, batch, collector, failed)
    if error is not None and not issubclass(type(error), FailedTuple):
        executor.end_or_go_on(task, error)


def _fail_rows(executor: BoltExecutor, task: BoltTask, batch: Batch, collector: BatchCollector) -> set[int]:
    """Fail the trees of the rows that the bolt failed; returns their runs."""
    failed = set()
    for row, why in collector.failed.items():
        run = collector.run_of(row)
        failed.add(run)
        executor.outbox.fail_roots(collector.anchoring.trees_of(run), executor.failure(task, FAILED, why))
    if batch.stream != TICK_STREAM:
        task.stats.failed += len(collector.failed)
    return failed


def _fail_all(executor: BoltExecutor, task: BoltTask, batch: Batch, error: BaseException) -> None:
    if issubclass(type(error), FailedTuple):
        failure = executor.failure(task, FAILED, line_of_error(error))
    else:
        trees = {root for root in batch.roots if root}
        failure = executor.failure(task, EXCEPTION, text_of_error(error), len(trees))
    executor.outbox.fail_roots(batch.roots, failure)
    for pairs in (batch.others or {}).values():
        executor.outbox.fail_roots((other for other, _ in pairs), failure)
    if batch.stream != TICK_STREAM:
        task.stats.failed += len(batch.rows)


def _ack(
    executor: BoltExecutor, task: BoltTask, batch: Batch, collector: BatchCollector, failed: Collection[int]
) -> None:
    """Ack all runs but the failed ones, whose trees wait for nothing any more."""
    executor.outbox.ack_batch(batch, collector.anchoring, failed)
    if batch.stream != TICK_STREAM:
        task.stats.untracked_executed += batch.untracked_rows()
