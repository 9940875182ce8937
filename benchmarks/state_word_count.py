"""Word counts with state that counts each word once: in all, and in windows of event time."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from benchmarks import batch_word_count, word_count
from benchmarks.corpus import Corpus
from benchmarks.drained import run_until_drained
from benchmarks.measured import Measured
from squall import (
    BasicBolt,
    BasicCollector,
    BatchCollector,
    ColumnBatch,
    Config,
    LocalCluster,
    StatefulBatchBolt,
    StatefulBolt,
    StreamBuilder,
    Topology,
    Tuple,
    tumbling,
)

LINES_PER_SEC = 10_000
"""Of event time, in each task of the spout."""
WORKERS = 2


class Count(StatefulBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup[0]
        self.state[word] = self.state.get(word, 0) + 1


class CountBatch(StatefulBatchBolt):
    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        for word, count in Counter(batch["word"]).items():
            self.state[word] = self.state.get(word, 0) + count


class TimedLines(word_count.TextSpout):
    outputs = ("line", "at")  # type: ignore[assignment]

    def next_tuple(self) -> None:
        number = self.next
        if number == len(self.lines):
            self.exhausted = True
            return
        self.collector.emit((self.lines[number], number / LINES_PER_SEC), message_id=number)
        self.next = number + 1


class Add(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Take a count."""


def _words(tup: Tuple) -> list[tuple[str, float]]:
    line, at = tup.values
    return [(word, at) for word in line.split()]


def window_count(path: str, repeat: int, parallelism: int) -> Topology:
    """Counts each word in each second of event time."""
    words = StreamBuilder().source("lines", TimedLines(path, repeat), parallelism=parallelism).flat_map(
        _words, "word", "at", parallelism=parallelism
    )
    windows = words.key_by("word").window(tumbling(secs=1, by="at", lag_secs=1))
    return windows.count(parallelism=parallelism).to(Add()).build()


def state_topology(path: str, repeat: int) -> Topology:
    return word_count.word_count(word_count.TextSpout(path, repeat), WORKERS, count=Count)


def _batches(path: str, repeat: int) -> Topology:
    return batch_word_count.batch_word_count(batch_word_count.Lines(path, repeat), WORKERS, count=CountBatch)


class ExactOnSquall:
    """Yardsticks on one cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def _run(self, topology: Any, config: Config, corpus: Corpus, workers: int, repeat: int) -> Measured:
        secs, _ = run_until_drained(topology(str(corpus.path), repeat), config, cluster=self._cluster)
        return Measured(secs, corpus.lines * repeat, corpus.words * repeat)

    @property
    def rows(self) -> Any:
        return partial(self._run, state_topology, Config(workers=WORKERS))

    @property
    def batches(self) -> Any:
        return partial(self._run, _batches, Config(workers=WORKERS, max_spout_pending=batch_word_count.PENDING))

    @property
    def windows(self) -> Any:
        return partial(self._run, partial(window_count, parallelism=WORKERS), Config(workers=WORKERS))
