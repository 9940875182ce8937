"""Feeds a running topology from a Structured Streaming query, which commits a batch when the topology has acked it.

::

    query = frame.writeStream.foreachBatch(feed("run/inlet")).option("checkpointLocation", ...).start()
    builder.set_spout("lines", LiveSpout("run/inlet", ["text"]))

Guarantees at least once from end to end: `feed` returns when every row of the batch is acked (or a dead letter), so
Spark asks its sources for no more before that, and forgets no row that is not. A batch that is asked for again, because
Spark was killed before its commit, is not fed again if it was acked, and goes on where it was if it was not. Rows go
through files that Spark's tasks write, never through the driver.

A row with a text that is not UTF-8 is a dead letter of the spout's: Spark writes such texts as they are.

Relies on Spark's tasks and the topology seeing one file system. Thread: the query's, in the driver.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from squall.engine.errors import ClusterError, SquallError, UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.inlet import Batch, Inlet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["feed"]

POLL_SECS = 0.02
#: Time between two looks whether the query is being stopped: it cannot end before its batch does.
ALIVE_SECS = 0.5
#: Time without an ack after which the log says so, each time.
SAY_SECS = 30.0
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"

log = logging.getLogger(__name__)


def feed(inlet: str | os.PathLike[str], timeout_secs: float | None = None) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` that feeds the LiveSpout of this inlet. `timeout_secs`: time without an ack after
    which the query fails (it can be started again, and nothing is lost); by default it waits for the topology.

    UsageError if `inlet` is something else's directory. The query fails if its checkpoint is of another inlet, or was
    set back."""
    if not isinstance(inlet, str | os.PathLike) or not os.fspath(inlet):
        raise UsageError(f"feed has the inlet {repr_of(inlet)}; allowed: the path of a directory")
    if timeout_secs is not None and not (isinstance(timeout_secs, int | float) and timeout_secs > 0):
        raise UsageError(f"feed has timeout_secs {repr_of(timeout_secs)}; allowed: a number above 0, or None")
    place = Inlet(inlet)

    def feed_batch(frame: DataFrame, number: int) -> None:
        try:
            feed_one(frame, number)
        except SquallError as error:
            # What Spark raises has it between two stacks.
            log.error("%s", error)
            raise

    def feed_one(frame: DataFrame, number: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise UsageError("feed was called outside of a query; allowed: frame.writeStream.foreachBatch(feed(INLET))")
        batch = Batch(place, query, number, _planned_ms(query, number))
        batch.check()
        batch.clear()
        if batch.is_acked:
            return
        if not batch.path.exists():
            place.fix_columns(", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema))
            draft = batch.new_draft()
            with _whole_timestamps(frame.sparkSession):
                frame.write.parquet(f"file://{draft}")
            batch.publish(draft)
        _wait(batch, timeout_secs)
        batch.note_acked()
        batch.clear()

    return feed_batch


@contextmanager
def _whole_timestamps(spark: SparkSession) -> Iterator[None]:
    """Have Spark write timestamps with their zone, unless it was told how: by default it writes INT96, an old form
    without one. `spark` is the query's own session, a clone of the user's."""
    if spark.conf.get(_TIMESTAMPS, None) is not None:
        yield
        return
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.unset(_TIMESTAMPS)


def _wait(batch: Batch, timeout_secs: float | None) -> None:
    """Return when all rows are acked."""
    now = time.monotonic()
    last, since, say_at, alive_at = -1, now, now + SAY_SECS, now + ALIVE_SECS
    while True:
        acked, rows = batch.progress()
        if acked == rows:
            return
        now = time.monotonic()
        if acked != last:
            last, since, say_at = acked, now, now + SAY_SECS
        state = f"{acked:,} of {rows:,} rows of batch {batch.number} are acked"
        advice = f"does a topology with LiveSpout({str(batch.inlet.path)!r}) run?"
        if timeout_secs is not None and now - since >= timeout_secs:
            raise ClusterError(f"{state}, and none within {timeout_secs:g} s; {advice}")
        if now >= say_at:
            say_at = now + SAY_SECS
            log.warning("%s, and none within %.0f s; %s", state, now - since, advice)
        if now >= alive_at:
            alive_at = now + ALIVE_SECS
            if _is_stopped(batch.query):
                raise ClusterError(f"the query was stopped when {state}; it goes on there when it is started again")
        time.sleep(POLL_SECS)


def _planned_ms(id_: str, number: int) -> int | None:
    """When Spark planned a batch of a running query, by its checkpoint; None if this PySpark does not tell."""
    from py4j.protocol import Py4JError

    query: Any = _query(id_)
    # The name of newer Sparks, then that of older ones.
    for name in ("metadataOpt", "metadata"):
        try:
            entry = query._jsq.streamingQuery().offsetLog().get(number).get()
            return int(getattr(entry, name)().get().batchTimestampMs())
        except (Py4JError, AttributeError, TypeError):
            continue
    return None


def _is_stopped(id_: str) -> bool:
    """Whether a query is being stopped, as Spark cannot interrupt Python. False if this session does not know it."""
    query = _query(id_)
    return query is not None and not query.isActive


def _query(id_: str) -> StreamingQuery | None:
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    return None if session is None else session.streams.get(id_)
