"""Topologies with a planted fault each, for `squall chaos`: numbers -> middle -> end.

ARGS: the fault, or "none", and a directory in which `end` writes each number that it receives.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchCollector,
    ColumnBatch,
    FailedTuple,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.ipc import link

MESSAGES = 600
ANCHORS_TO_ROW_0, ANCHORS_TO_NEIGHBOUR = "anchors to row 0", "anchors to its neighbour"
TAKES_REPEATS = "links take repeats"


class Numbers(ReplayingSpout):
    """Begins anew after each death."""

    outputs = ("n",)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(MESSAGES):
            yield (uuid.uuid4().hex if self.fault == "new ids" else n), (n,)

    def on_failure(self, message_id: Any, failure: Any) -> None:
        if self.fault == "forgets failures":
            super().ack(message_id)
        else:
            super().on_failure(message_id, failure)


class Middle(BasicBolt):
    """Hands each number on."""

    outputs = ("n",)

    def __init__(self, fault: str, directory: str) -> None:
        self.fault, self.died = fault, Path(directory, "died")

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In the worker that it comes to, before any task of it is made."""
        self.__dict__.update(state)
        if self.fault == TAKES_REPEATS:
            take_repeats()

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.seen: set[int] = set()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.fault == "dies by itself" and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "fails one" and tup["n"] == 3:
            raise FailedTuple
        drops = self.fault == "drops all" or (self.fault == "drops the seen" and tup["n"] in self.seen)
        self.seen.add(tup["n"])
        if not drops:
            collector.emit(tup.values)


def take_repeats() -> None:
    """Links take in what comes twice."""
    accept = link.LinkReceiver.accept

    def accept_all(self: link.LinkReceiver, sequence: int, n_bytes: int = 0) -> bool:
        return accept(self, sequence, n_bytes) or True

    link.LinkReceiver.accept = accept_all  # type: ignore[method-assign]


class BatchMiddle(BatchBolt):
    outputs = ("n",)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        rows = range(len(batch))
        parents = {ANCHORS_TO_ROW_0: [0 for _ in rows], ANCHORS_TO_NEIGHBOUR: [(row + 1) % len(batch) for row in rows]}
        collector.emit_batch((batch["n"],), parents=parents.get(self.fault, list(rows)))


class End(BasicBolt):
    """Writes each number before it acks it; or late; or counts in memory, and writes at its end."""

    def __init__(self, fault: str, directory: str) -> None:
        self.most_kept = {"writes late": 100, "memory": MESSAGES}.get(fault, 1)
        self.directory = directory

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.numbers: list[int] = []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.numbers.append(tup["n"])
        if len(self.numbers) >= self.most_kept:
            self.cleanup()

    def cleanup(self) -> None:
        with Path(self.directory, f"numbers-{os.getpid()}").open("a") as file:
            file.writelines(f"{n}\n" for n in self.numbers)
        self.numbers = []


def topology(args: list[str]) -> Topology:
    fault, directory = args
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(fault))
    middle = BatchMiddle(fault) if fault in (ANCHORS_TO_ROW_0, ANCHORS_TO_NEIGHBOUR) else Middle(fault, directory)
    builder.set_bolt("middle", middle).shuffle_grouping("numbers")
    builder.set_bolt("end", End(fault, directory)).shuffle_grouping("middle")
    return builder.build()


def number(row: dict[str, int]) -> int:
    """What `--key` compares."""
    return row["n"]


def numbers(args: list[str]) -> set[int]:
    """What `end` has written."""
    return {int(line) for path in Path(args[1]).glob("numbers-*") for line in path.read_text().splitlines()}
