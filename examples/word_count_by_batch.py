"""The word count of word_count.py by batches of columns: exact as well, and faster.

    squall run examples/word_count_by_batch.py --workers 2 -- some.txt other.txt
    squall run examples/word_count_by_batch.py --workers 2 -- --feed FEED --out RESULT

A batch is many tuples, and their acks follow when `execute_batch` returns: one write is for many tuples, and nothing
has to be held. `count` emits each total anchored to the first tuple of its word in the batch: if it is lost, that
tuple comes again, and the total with it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import word_count

from squall import BatchBolt, BatchCollector, ColumnBatch, Topology, TopologyBuilder, TopologyContext


class Split(BatchBolt):
    """Splits lines into words, and writes a row of the ledger for each line."""

    outputs = ("word", "origin", "position")

    def __init__(self, out: str | None) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.ledger = self.out and word_count.WholeLines(Path(self.out, "ledger"), context.task_index)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        lines = [text.split() for text in batch["text"]]
        counts = [len(words) for words in lines]
        origins = chain.from_iterable(map(repeat, batch["origin"], counts))
        positions = chain.from_iterable(map(range, counts))
        collector.emit_batch((list(chain.from_iterable(lines)), list(origins), list(positions)), counts=counts)
        if self.ledger:
            rows = zip(batch["partition"], batch["offset"], counts, strict=True)
            self.ledger.append(
                f'{{"partition": {partition}, "offset": {offset}, "words": {words}}}\n'
                for partition, offset, words in rows
            )

    def cleanup(self) -> None:
        if self.ledger:
            self.ledger.close()


class Count(BatchBolt):
    """Counts words; writes the totals, and emits them."""

    outputs = ("word", "total")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counted = word_count.Counted(context.state_dir)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words = batch["word"]
        totals = self.counted.add(zip(words, batch["origin"], batch["position"], strict=True))
        first = dict(zip(reversed(words), range(len(words) - 1, -1, -1), strict=True))
        collector.emit_batch((list(totals), list(totals.values())), parents=[first[word] for word in totals])

    def cleanup(self) -> None:
        self.counted.journal.close()


class Sink(BatchBolt):
    """Appends totals to RESULT before they are acked; without RESULT, prints the most common words."""

    def __init__(self, out: str | None) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.totals: Counter[str] = Counter()
        self.quoted = json.JSONEncoder().encode
        self.file = self.out and word_count.WholeLines(Path(self.out, "counts"), context.task_index)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        rows = zip(batch["word"], batch["total"], strict=True)
        if self.file:
            self.file.append(f'{{"word": {self.quoted(word)}, "count": {total}}}\n' for word, total in rows)
        else:
            for word, total in rows:
                self.totals[word] = max(total, self.totals[word])

    def cleanup(self) -> None:
        if self.file:
            self.file.close()
        else:
            word_count.print_commonest(self.totals)


def topology(args: list[str]) -> Topology:
    lines, out, n = word_count.asked(args)
    builder = TopologyBuilder()
    builder.set_spout("lines", lines, parallelism=n)
    builder.set_bolt("split", Split(out), parallelism=n).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=n).fields_grouping("split", "word")
    builder.set_bolt("sink", Sink(out)).global_grouping("count")
    return builder.build()
