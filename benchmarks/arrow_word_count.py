"""The word count in batches of Arrow columns from end to end: no word becomes a Python object, but for one of
each that a batch has, whose hash tells its task.

Relies on: pyarrow; a text whose words have one space between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute

from benchmarks.batch_word_count import Lines, batch_word_count
from benchmarks.drained import run_until_drained
from squall import (
    BatchBolt,
    BatchCollector,
    ColumnBatch,
    Config,
    LocalCluster,
    RunReport,
    SpoutCollector,
    TopologyContext,
)

PENDING = 32768
"""Lines under way per spout task: four batches of the longest."""
_MOST_COUNTED = 1 << 19
"""Counts of single batches that are kept before they are added up."""


class ArrowLines(Lines):
    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        repeat, self.repeat = self.repeat, 1
        super().open(conf, context, collector)
        # Converted once, because that takes longer than counting.
        self.lines = pyarrow.concat_arrays([pyarrow.array(self.lines)] * repeat)


class ArrowSplit(BatchBolt):
    outputs = ("word",)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words = compute.split_pattern(batch["line"], " ")
        collector.emit_batch((words.flatten(),), counts=compute.list_value_length(words))


class ArrowCount(BatchBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counted: list[Any] = []
        self.size = 0

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words, times = batch["word"].value_counts().flatten()
        self.counted.append(pyarrow.table([words, times], ["word", "times"]))
        self.size += len(words)
        if self.size > _MOST_COUNTED:
            self.counted = [self.counts()]
            self.size = 0

    def counts(self) -> Any:
        """How often each word came, as a table."""
        every = pyarrow.concat_tables(self.counted)
        added = every.group_by("word", use_threads=False).aggregate([("times", "sum")])
        return added.rename_columns({"word": "word", "times_sum": "times"})


def arrow_run(
    path: Path | str, workers: int, repeat: int, cluster: LocalCluster | None = None
) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report."""
    topology = batch_word_count(ArrowLines(str(path), repeat), workers, ArrowSplit, ArrowCount)
    return run_until_drained(topology, Config(workers=workers, max_spout_pending=PENDING), cluster=cluster)
