"""The word count of word_count.py by batches of columns: exact as well, and faster.

    squall run examples/word_count_by_batch.py --workers 2 -- some.txt other.txt
    squall run examples/word_count_by_batch.py --workers 2 -- --feed FEED --out RESULT

`count` emits each total anchored to the last tuple of its word in the batch, so RESULT/counts has some of the numbers
up to a word's count, and the largest is the count.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain

import word_count

from squall import BatchBolt, BatchCollector, ColumnBatch, StatefulBatchBolt, Topology


class Split(BatchBolt):
    outputs = word_count.Split.outputs

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        lines = [text.split() for text in batch["text"]]
        counts = [len(words) for words in lines]
        collector.emit_batch((list(chain.from_iterable(lines)),), counts=counts)
        collector.emit_batch((batch["partition"], batch["offset"], counts), stream="lines")


class Count(StatefulBatchBolt):
    outputs = ("word", "count")

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words = batch["word"]
        last = {word: row for row, word in enumerate(words)}
        totals = []
        for word, count in Counter(words).items():
            total = self.state[word] = self.state.get(word, 0) + count
            totals.append(total)
        collector.emit_batch((list(last), totals), parents=list(last.values()))


def topology(args: list[str]) -> Topology:
    return word_count.topology(args, Split, Count)
