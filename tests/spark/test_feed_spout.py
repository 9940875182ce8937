"""FeedSpout reads what Spark writes: a prepared feed, and the files of a Structured Streaming query, while it runs."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.pages import Page
from tests.process.cli import start
from tests.process.waiting import wait_for
from tests.process.written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_feeds_a_running_topology_and_spark_reads_what_that_writes(spark: SparkSession, tmp_path: Path) -> None:
    """The blocks of docs/spark.md, one after the other."""
    # Java's directory is another one.
    blocks = {name: text.replace('"build/', f'"{tmp_path}/') for name, text in Page("docs/spark.md").programs.items()}
    (tmp_path / "tail.py").write_text(blocks["tail.py"])
    incoming, feed, out = tmp_path / "incoming", tmp_path / "feed", tmp_path / "out"
    incoming.mkdir(parents=True)
    names: dict[str, Any] = {"spark": spark}
    exec(blocks["stream.py"], names)
    queries = [names["query"]]
    written = Written(out)
    running = start("run", tmp_path / "tail.py", "--quiet", "--", feed, out)
    try:
        for texts in (["a", "b", "a"], ["c"]):
            (incoming / f"{texts[0]}.txt").write_text("\n".join(texts))
            wanted = written.texts.total() + len(texts)
            wait_for("the rows of a file", lambda wanted=wanted: written.look().total() >= wanted)
        exec(blocks["read.py"], names)
        queries.append(names["query"])
        assert Counter(row.text for row in names["rows"].collect()) == Counter("aabc")
        queries[-1].processAllAvailable()
        assert spark.read.parquet(str(tmp_path / "copy")).count() == 4
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0, said
    finally:
        running.kill()
        for query in queries:
            query.stop()
