"""Topologies for `squall chaos`, whole and broken on purpose: numbers -> halves -> end.

What breaks the engine is put in where a component is unpickled in a worker: before any task of it is made, and in no
other process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    AckedPrefix,
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    ReplayingSpout,
    Spout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.chaos.line_log import LineLog, digest
from squall.engine.flow.parcel import Acks
from squall.engine.tracking.acker import Acker
from squall.ipc import link
from tests.process.parts import OneShot

MESSAGES = 300
HELD_SECS = 0.15


class Numbers(ReplayingSpout):
    """0, 1, 2 ..., from the position that it keeps; one that is broken keeps the highest that was acked."""

    outputs = ("n",)

    def __init__(self, highest: bool = False) -> None:
        self.highest = highest

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = Path(context.state_dir) / "position"
        self.prefix = AckedPrefix(int(self.file.read_text()) if self.file.exists() else 0)
        self.position = self.prefix.committable

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(self.position, MESSAGES):
            yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self.prefix.ack(message_id)
        position = max(self.position, message_id + 1) if self.highest else self.prefix.committable
        if position != self.position:
            self.position = position
            fresh = self.file.with_suffix(".new")
            fresh.write_text(str(position))
            fresh.replace(self.file)


class Halves(BasicBolt):
    """Two tuples of one."""

    outputs = ("n", "half")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["n"], 1))
        collector.emit((tup["n"], 2))


class Slow(Halves):
    """Slower than the source: there are always tuples that wait for it, to be lost with its worker."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(0.01)
        super().execute(tup, collector)


class End(Bolt):
    """Keeps one message in ten for a while, so that there are always some that are not acked while later ones are.

    With a ledger it writes each first half down before it acks it.
    """

    def __init__(self, ledger: str | None = None) -> None:
        self.ledger = ledger

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[tuple[float, Tuple]] = []
        self.log = None
        if self.ledger is not None:
            self.log = LineLog(f"{self.ledger}/sink-own-{os.getpid()}-{context.task_id}")

    def execute(self, tup: Tuple) -> None:
        now = time.monotonic()
        if tup.is_tick:
            self.collector.ack(tup)
        elif tup["n"] % 10 == 3 and tup["half"] == 2:
            self.held.append((now, tup))
        else:
            self.done(tup)
        while self.held and (tup.is_tick and now - self.held[0][0] >= HELD_SECS):
            self.done(self.held.pop(0)[1])

    def done(self, tup: Tuple) -> None:
        if tup["half"] == 1:
            self.write(tup["n"])
        self.collector.ack(tup)

    def write(self, n: int) -> None:
        if self.log is not None:
            key = digest(("numbers", n))
            self.log.append("in", "own ledger", [key], digest((n,)), time.monotonic_ns())

    def cleanup(self) -> None:
        if self.log is not None:
            self.log.close()


class DiesOnce(Halves):
    """Kills its worker when it comes to the middle."""

    def __init__(self, mark: str) -> None:
        self.mark = Path(mark)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] == MESSAGES // 2 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().execute(tup, collector)


class Breaks(Halves):
    """Breaks a part of the engine in the worker that it comes to, and may take a while over each tuple."""

    def __init__(self, part: str, secs: float = 0.0) -> None:
        self.part = part
        self.secs = secs

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        {"dedupe": take_repeats, "init guard": let_init_repeat}[self.part]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(self.secs)
        super().execute(tup, collector)


def take_repeats() -> None:
    """Links take in what comes twice."""
    accept = link.LinkReceiver.accept

    def accept_all(self: link.LinkReceiver, sequence: int, n_bytes: int = 0) -> bool:
        return accept(self, sequence, n_bytes) or True

    link.LinkReceiver.accept = accept_all  # type: ignore[method-assign]


def let_init_repeat() -> None:
    """One INIT in two comes twice, and an acker XORs both, as in Storm's own rule."""
    init = Acker.init

    def init_twice(self: Acker, root: int, xor: int, spout_task: int, mask: int = 0) -> None:
        init(self, root, xor, spout_task, mask)
        if root % 2 == 0:
            self.ack(Acks({root: xor}))

    Acker.init = init_twice  # type: ignore[method-assign]


def topology(highest: bool = False, halves: Halves | None = None, ledger: str | None = None) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(highest))
    builder.set_bolt("halves", halves or Halves(), parallelism=2).shuffle_grouping("numbers")
    end = builder.set_bolt("end", End(ledger), parallelism=2).fields_grouping("halves", "n")
    end.set_config(tick_tuple_freq_secs=0.05)
    return builder.build()


def numbers() -> Topology:
    return topology()


def highest() -> Topology:
    return topology(highest=True)


def halved(spout: Spout, halves: Halves) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", spout)
    builder.set_bolt("halves", halves).shuffle_grouping("numbers")
    return builder.build()


def one_shot(arguments: list[str]) -> Topology:
    """Its source never emits again what failed."""
    [directory] = arguments
    return halved(OneShot(directory, 50), Halves())


class Opens(Halves):
    """Takes an hour to be ready, and tells when it begins."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        (Path(os.environ["TMPDIR"]) / "opening").touch()
        time.sleep(3600)


def opens() -> Topology:
    return halved(Numbers(), Opens())
