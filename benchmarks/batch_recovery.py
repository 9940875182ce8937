"""The topology of `benchmarks.recovery` in batches of columns: an endless spout that notes when everything that a death
cost has been emitted again."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.noted import note
from squall import (
    AckedPrefix,
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Failure,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
)

PENDING = 8192
"""Rows under way per spout task."""
_COMMIT_NS = 50_000_000


class EndlessBatches(BatchSpout):
    """Emits numbers until a file "enough" exists. Notes in `directory` when it emits the first row after a death again,
    and when the last."""

    outputs = ("n",)

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.exhausted = False

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.clock = context.now_ns
        self.name = f"{context.component_id}-{context.task_index}"
        self.file = Path(context.state_dir) / "position"
        self.prefix = AckedPrefix(int(self.file.read_text()) if self.file.exists() else 0)
        self.offset = self.prefix.committable
        self.reached = self._mapped(Path(context.state_dir) / "reached")
        self.lost_to = self.reached[0] if context.attempt > 1 else 0
        """A predecessor emitted the rows before this one."""
        self.replays = self.begins = self.offset < self.lost_to
        """Whether there are rows to emit again, and whether that has yet to begin."""
        self.again: list[int] = []
        self.ended = False
        self.committed_ns = 0

    @staticmethod
    def _mapped(file: Path) -> memoryview[int]:
        """One word that outlives the process."""
        with open(file, "a+b") as opened:
            opened.truncate(8)
            return memoryview(mmap.mmap(opened.fileno(), 8)).cast("Q")

    def next_batch(self, rows: int) -> None:
        ids = self.again[:rows]
        if not ids:
            if self.ended or (Path(self.directory) / "enough").exists():
                self._end()
                return
            ids = list(range(self.offset, self.offset + rows))
            self.offset += rows
        else:
            del self.again[:rows]
        if self.begins:
            self.begins = False
            note(self.directory, "replays", self.clock())
        self.collector.emit_batch((ids,), message_ids=ids)
        self.reached[0] = max(self.offset, self.reached[0])
        if self.replays and not self.again and self.offset >= self.lost_to:
            self.replays = False
            note(self.directory, "replayed", self.clock())

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            note(self.directory, f"end-{self.name}", self.offset)
            self._commit()
        self.exhausted = self.prefix.committable == self.offset

    def ack_batch(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            self.prefix.ack(message_id)
        if self.ended or self.clock() - self.committed_ns > _COMMIT_NS:
            self._commit()

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        self.begins = self.begins or not self.replays
        self.replays = True
        self.again += message_ids

    def _commit(self) -> None:
        self.committed_ns = self.clock()
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(self.prefix.committable))
        fresh.replace(self.file)


class DoubleBatch(BatchBolt):
    """Emits two rows for each input row."""

    outputs = ("n",)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        numbers = batch["n"]
        collector.emit_batch((numbers + numbers,), parents=[*range(len(numbers)), *range(len(numbers))])


class DropBatch(BatchBolt):
    """Ends the trees."""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        """Do nothing."""


def batch_topology(directory: str, workers: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", EndlessBatches(directory), workers)
    builder.set_bolt("double", DoubleBatch(), workers).shuffle_grouping("numbers")
    builder.set_bolt("drop", DropBatch(), workers).fields_grouping("double", "n")
    return builder.build()
