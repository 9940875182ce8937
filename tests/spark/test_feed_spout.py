"""FeedSpout reads what Spark writes: a prepared feed, and the files of a Structured Streaming query, while it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from squall import FeedSpout, TopologyBuilder
from squall.pipeline.prepare import prepare
from squall.pipeline.sources import open_feed
from squall.testing import complete_topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def texts_of(spout: FeedSpout) -> Counter[str]:
    builder = TopologyBuilder()
    builder.set_spout("lines", spout, parallelism=2)
    return Counter(text for text, in complete_topology(builder.build())["lines"])


def test_a_prepared_feed_is_read_whole(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    texts = [f"line {number}" for number in range(500)]
    (source / "a.txt").write_text("\n".join(texts[:300]))
    (source / "b.txt").write_text("\n".join(texts[300:]))
    prepare(source, tmp_path / "feed", partitions=2)
    assert texts_of(FeedSpout(tmp_path / "feed", range_rows=64)) == Counter(texts)


def test_a_streaming_querys_files_are_read_and_new_ones_found(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    feed = tmp_path / "fe ed"

    def stream(name: str, texts: list[str]) -> None:
        (source / name).write_text("\n".join(texts))
        query = (
            spark.readStream.text(str(source)).withColumnRenamed("value", "text").writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(str(feed))
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    stream("a.txt", ["a", "b", "a"])
    # What a failed batch leaves is in no log.
    found = sorted(feed.glob("*.parquet"))
    (feed / "left.parquet").write_bytes(found[0].read_bytes())
    assert texts_of(FeedSpout(feed)) == Counter(["a", "b", "a"])
    follower = open_feed(feed, ("text",), follow=True)
    first = follower.find()
    stream("b.txt", ["c"])
    assert sum(part.rows for part in first) == 3
    assert [part.rows for part in follower.find() if part.rows] == [1]
    assert texts_of(FeedSpout(feed)) == Counter(["a", "b", "a", "c"])
