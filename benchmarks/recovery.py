"""Measures recovery over many kills: the time from a worker's SIGKILL to the first replay of a message that it held,
and until its replacement works; checks that nothing is lost.

A spout numbers its messages endlessly; it stops after enough kills, and everything must be acked. A living spout notes
the time of its first replay of a failed message; for a dead one, its successor notes the time of its first emit.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.batch_recovery import PENDING, batch_topology
from benchmarks.noted import note
from squall import (
    AckedPrefix,
    BasicBolt,
    BasicCollector,
    ClusterError,
    Config,
    Failure,
    Job,
    LocalCluster,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.ipc.rundir import RunDir

_WORKERS = 2
BETWEEN_SECS = (0.55, 0.65)
"""Time from a replacement at work to the next kill, of the other worker. A worker that dies within a second of its
start four times in a row is replaced with growing delays."""
_MANY_KILLS, _BETWEEN_MANY_SECS = 60, (1.0, 1.1)
"""Above so many: a slot is given up after 31 deaths within a minute."""
_PATIENCE_SECS = 20.0


class Endless(ReplayingSpout):
    """Emits numbers until a file "enough" exists. Writes every record at once, as a line of a file in `directory`."""

    outputs = ("n",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.file = Path(context.state_dir) / "position"
        self.prefix = AckedPrefix(int(self.file.read_text()) if self.file.exists() else 0)
        self.name = f"{context.component_id}-{context.task_index}"
        self.clock = context.now_ns
        self.failed: set[Any] = set()
        self.noted = context.attempt == 1
        self.offset = self.prefix.committable
        self.committed_ns = 0

    def read(self) -> Iterator[tuple[Any, Any]]:
        enough = Path(self.directory) / "enough"
        while self.offset % 512 or not enough.exists():
            if not self.noted:
                self.noted = True
                note(self.directory, "replays", self.clock())
            yield self.offset, (self.offset,)
            self.offset += 1
        note(self.directory, f"end-{self.name}", self.offset)

    def next_tuple(self) -> None:
        if self._due and self._due[0][2] in self.failed and self._due[0][0] <= self.clock():
            self.failed.clear()
            note(self.directory, "replays", self.clock())
        super().next_tuple()
        if self.exhausted:
            self.commit()

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.failed.add(message_id)
        super().on_failure(message_id, failure)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self.prefix.ack(message_id)
        if self.clock() - self.committed_ns > 50_000_000:
            self.commit()

    def commit(self) -> None:
        self.committed_ns = self.clock()
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(self.prefix.committable))
        os.replace(fresh, self.file)


class Double(BasicBolt):
    """Emits two tuples for each input."""

    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["n"],))
        collector.emit((tup["n"],))


class Drop(BasicBolt):
    """Ends the tree."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Recovery:
    """The results."""

    replay_secs: list[float]
    """Seconds from each kill to the first replay after it."""
    working_secs: list[float]
    """Seconds from each kill until the replacement was seen to emit or execute tuples, checked each millisecond."""
    replayed_secs: list[float]
    """Seconds from each kill until all that was under way there was emitted again; of batches only."""
    lost: int
    """Messages that were read and never acked."""
    dead_letters: int
    timed_out: int


def topology(directory: str, workers: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Endless(directory), workers)
    builder.set_bolt("double", Double(), workers).shuffle_grouping("numbers")
    builder.set_bolt("drop", Drop(), workers).shuffle_grouping("double")
    return builder.build()


def messages_lost(directory: Path, run_dir: RunDir, name: str, workers: int) -> int:
    """Messages that the spouts of a drained topology read and that were never acked."""
    lost = 0
    for index in range(workers):
        read = int((directory / f"end-numbers-{index}").read_text().split()[-1])
        lost += read - int((run_dir.topology_state(name) / f"numbers-{index}" / "position").read_text())
    return lost


def measure_recovery(
    kills: int, seed: int, directory: Path, between_secs: tuple[float, float] | None = None, batches: bool = False
) -> Recovery:
    """Kill workers at random moments of one run, of a topology by rows or by batches."""
    rng = random.Random(seed)
    between_secs = between_secs or (BETWEEN_SECS if kills <= _MANY_KILLS else _BETWEEN_MANY_SECS)
    killed_ns: list[int] = []
    # In turn: see BETWEEN_SECS.
    victims = [number % _WORKERS for number in range(kills)]
    working_secs: list[float] = []
    with LocalCluster(slots_per_node=_WORKERS, run_dir=directory / "run", logs=False) as cluster:
        pending = PENDING if batches else 1000
        config = Config(workers=_WORKERS, message_timeout_secs=3600, max_spout_pending=pending)
        made = (batch_topology if batches else topology)(str(directory), _WORKERS)
        job = cluster.submit("recovery", made, config)
        job.wait_until_ready(_PATIENCE_SECS)
        for number in range(kills):
            enough = job.stats().acked + 2000
            until(partial(has_acked, job, enough), job, "acks")
            time.sleep(rng.uniform(*between_secs))
            victim = pid_of(job, victims[number])
            killed_ns.append(time.monotonic_ns())
            # Not `cluster.inject`: it takes the way over Nimbus and the supervisor, 3 ms that are no part of recovery.
            os.kill(victim, signal.SIGKILL)
            slot, life = victims[number], 2 + number // _WORKERS
            until(partial(worked_at_secs, job, slot, life), job, "the replacement at work")
            working_secs.append((worked_at_secs(job, slot, life) or 0.0) - killed_ns[-1] / 1e9)
            if not batches:  # of batches, there may be nothing to replay
                until(partial(_has_replayed, directory, killed_ns[-1]), job, "a replay")
        (directory / "enough").touch()
        report = job.wait_until_drained(timeout=120)
        lost = messages_lost(directory, cluster.run_dir, job.name, _WORKERS)
    after = list(zip(killed_ns, [*killed_ns[1:], time.monotonic_ns()], strict=True))
    first = [found[0] for each in after if (found := _noted(directory / "replays", *each))]
    last = [found[-1] for each in after if (found := _noted(directory / "replayed", *each))]
    return Recovery(first, working_secs, last, lost, report.dead_letters, report.timed_out)


def _noted(file: Path, begin_ns: int, end_ns: int) -> list[float]:
    """The times in a file that lie between two others, in seconds from the first of these."""
    found = map(int, file.read_text().split()) if file.exists() else ()
    return sorted((at - begin_ns) / 1e9 for at in found if begin_ns < at < end_ns)


def _has_replayed(directory: Path, since_ns: int) -> bool:
    return bool(_noted(directory / "replays", since_ns, time.monotonic_ns()))


def pid_of(job: Job, slot: int) -> int:
    view = job.view()
    if view is None:
        raise ClusterError(f"topology {job.name!r} has no workers")
    return view.board.slot(slot).pid


def has_acked(job: Job, count: int) -> bool:
    return job.stats().acked > count


def worked_at_secs(job: Job, slot: int, incarnation: int) -> float | None:
    view = job.view()
    return None if view is None else view.working_secs(f"node-1:{6700 + slot}", incarnation)


def until(condition: Callable[[], object], job: Job, what: str) -> None:
    """Wait for a condition. ClusterError after _PATIENCE_SECS."""
    deadline = time.monotonic() + _PATIENCE_SECS
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"topology {job.name!r}: waited {_PATIENCE_SECS:g} s for {what}")
        time.sleep(0.002)
