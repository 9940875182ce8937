"""A streaming query feeds a topology: it commits a batch when the topology has acked it, and not before."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from squall import UsageError
from squall.pipeline.live import feed
from tests.inlet_lab import Lab
from tests.process.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def test_a_batch_is_committed_when_its_rows_are_acked(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    inlet, checkpoint = tmp_path / "in let", tmp_path / "checkpoint"
    commits = checkpoint / "commits"

    def start(timeout_secs: float | None = None) -> StreamingQuery:
        frame = spark.readStream.text(str(source)).withColumnRenamed("value", "text")
        writer = frame.writeStream.foreachBatch(feed(inlet, timeout_secs))
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def put(name: str, *texts: str) -> None:
        (source / f"_{name}").write_text("\n".join(texts))
        (source / f"_{name}").rename(source / name)

    def sees(lab: Lab, *texts: str) -> bool:
        lab.go()
        return sorted(lab.bolt.seen) == [*texts]

    put("a.txt", "a", "b", "c")
    query = start()
    try:
        with Lab(inlet, "text") as lab:
            wait_for("the rows of a batch", lambda: sees(lab, "a", "b", "c"), 120)
            lab.bolt.ack(2)
            lab.go()
            put("b.txt", "d")
            assert sees(lab, "a", "b", "c")
            # It ends although its batch does not.
            query.stop()
            assert not (commits / "0").exists()
            query = start()
            assert sees(lab, "a", "b", "c")
            lab.bolt.ack()
            wait_for("the next batch", lambda: sees(lab, "a", "b", "c", "d"))
            assert [path.name for path in commits.glob("[0-9]*")] == ["0"]
            lab.bolt.ack()
            lab.go()
            query.processAllAvailable()
            assert sorted(path.name for path in commits.glob("[0-9]*")) == ["0", "1"]
            assert sees(lab, "a", "b", "c", "d")
        query.stop()
        # The whole topology is away, and the query was told not to wait for it.
        put("c.txt", "e")
        query = start(timeout_secs=0.2)
        with pytest.raises(Exception, match=r"0 of 1 rows of batch 2 are acked, and none within 0\.2 s; does a"):
            query.processAllAvailable()
    finally:
        query.stop()
    with Lab(inlet, "text") as lab:
        wait_for("the row", lambda: sees(lab, "e"))
        lab.bolt.ack()
        lab.go()
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(path.name for path in inlet.iterdir()) == ["_acked", "_claims", "_reader", "_schema"]


def test_a_text_that_is_not_utf8_is_a_dead_letter_and_its_batch_is_committed(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    inlet, checkpoint = tmp_path / "inlet", tmp_path / "checkpoint"
    (source / "a.txt").write_bytes(b"ok\nb\xff\n")
    # Names of columns may hold anything.
    frame = spark.readStream.text(str(source)).selectExpr("value AS `te.x``t`", "array(value) AS many")
    writer = frame.writeStream.foreachBatch(feed(inlet)).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        with Lab(inlet, "te.x`t") as lab:

            def sees_both() -> bool:
                lab.go()
                return len(lab.bolt.seen) == len(lab.dead_letters) == 1

            wait_for("the rows of the batch", sees_both)
            assert lab.bolt.seen == ["ok"]
            [(_, _, _, values, failure)] = lab.dead_letters
            assert values == (b"b\xff",)
            assert "has a text that is not UTF-8 in row " in failure.error
            lab.bolt.ack()
            lab.go()
            query.processAllAvailable()
    finally:
        query.stop()
    assert (checkpoint / "commits" / "0").exists()


@pytest.mark.parametrize("form", [None, "INT96"])
def test_a_timestamp_is_a_datetime_in_utc_unless_spark_was_told_otherwise(
    spark: SparkSession, source: Path, tmp_path: Path, form: str | None
) -> None:
    setting, inlet, at = "spark.sql.parquet.outputTimestampType", tmp_path / "inlet", "2026-01-02 03:04:05.678901"
    (source / "a.txt").write_text(at)
    frame = spark.readStream.text(str(source)).selectExpr("CAST(value AS timestamp) AS at")
    writer = frame.writeStream.foreachBatch(feed(inlet)).option("checkpointLocation", str(tmp_path / "checkpoint"))
    if form is not None:
        spark.conf.set(setting, form)
    query = writer.start()
    spark.conf.unset(setting)
    try:
        with Lab(inlet, "at") as lab:

            def sees() -> bool:
                lab.go()
                return bool(lab.bolt.seen)

            wait_for("the row", sees)
            zone = datetime.UTC if form is None else None
            assert lab.bolt.seen == [datetime.datetime.fromisoformat(at).replace(tzinfo=zone)]
            assert type(lab.bolt.seen[0]) is datetime.datetime
            lab.bolt.ack()
            lab.go()
            query.processAllAvailable()
    finally:
        query.stop()


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"feed has timeout_secs -1; allowed: "):
        feed(tmp_path / "inlet", -1)
    wrong: Any = "a"
    with pytest.raises(UsageError, match=r"feed has timeout_secs 'a'; allowed: "):
        feed(tmp_path / "inlet", wrong)


@pytest.mark.parametrize("wrong", [None, ""])
def test_an_inlet_that_is_no_path_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"feed has the inlet (None|''); allowed: the path of a directory"):
        feed(wrong)


@pytest.mark.parametrize("acked", [True, False])
def test_a_checkpoint_that_was_set_back_is_refused(
    spark: SparkSession, source: Path, tmp_path: Path, acked: bool
) -> None:
    """As Spark itself advises ("delete CHECKPOINT/offsets to start over"): the query keeps its id, and counts anew."""
    inlet, checkpoint = tmp_path / "inlet", tmp_path / "checkpoint"

    def start(timeout_secs: float | None = None) -> StreamingQuery:
        writer = spark.readStream.text(str(source)).writeStream.foreachBatch(feed(inlet, timeout_secs))
        return writer.option("checkpointLocation", str(checkpoint)).start()

    (source / "a.txt").write_text("a")
    with Lab(inlet, "value") as lab:
        query = start()
        try:

            def sees() -> bool:
                lab.go()
                return bool(lab.bolt.seen == ["a"])

            wait_for("the row", sees)
            if acked:
                lab.bolt.ack()
                lab.go()
                query.processAllAvailable()
        finally:
            query.stop()
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(checkpoint / name)
        (source / "b.txt").write_text("b")
        # Not taken for the batch that is there: nobody would ever see the new row.
        query = start(timeout_secs=30)
        try:
            with pytest.raises(Exception, match=r"was set back to batch 0, which inlet .* had before, with other rows"):
                query.processAllAvailable()
        finally:
            query.stop()
        assert not (checkpoint / "commits" / "0").exists()


def test_a_checkpoint_of_another_inlet_is_refused(
    spark: SparkSession, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def start(inlet: Path) -> StreamingQuery:
        writer = spark.readStream.text(str(source)).writeStream.foreachBatch(feed(inlet))
        return writer.option("checkpointLocation", str(checkpoint)).start()

    first, second = tmp_path / "first", tmp_path / "second"
    (source / "a.txt").write_text("")
    query = start(first)
    try:
        query.processAllAvailable()
        query.stop()
        (source / "b.txt").write_text("")
        query = start(second)
        with pytest.raises(Exception, match=r"begins with batch 1, and inlet .*second has had none"):
            query.processAllAvailable()
        # Also in a line of its own: Spark has it between two stacks.
        [said] = [record.getMessage() for record in caplog.records if record.name == "squall.pipeline.live"]
        assert said.startswith("the query begins with batch 1, and inlet ")
        # It goes on where it was.
        query = start(first)
        query.processAllAvailable()
    finally:
        query.stop()
