"""The word count on a Storm cluster, measured as acked lines between two moments after a warm-up."""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.measured import Measured
from benchmarks.paced import BUCKETS
from benchmarks.storm.cluster import Cluster

JAVA = "java"
PYTHON = f"{sys.executable} split_bolt.py"
"""The two bolts that split."""
_START_SECS = 60.0
_FORMAT = struct.Struct(f"<4q{BUCKETS}q")


@dataclass(frozen=True)
class Setting:
    """How the topology is laid out and tuned. Found by trying: see benchmarks/NOTES.md."""

    name: str
    workers: int = 1
    split: str = JAVA
    spouts: int = 1
    splits: int = 1
    counts: int = 1
    ackers: int = 1
    pending: int = 4000
    batch: int = 100
    heap: str = "2g"

    def arguments(self) -> list[str]:
        values: dict[str, object] = {
            "spouts": self.spouts,
            "splits": self.splits,
            "counts": self.counts,
            "topology.workers": self.workers,
            "topology.acker.executors": self.ackers,
            "topology.max.spout.pending": self.pending,
            "topology.producer.batch.size": self.batch,
            "topology.transfer.batch.size": self.batch if self.workers > 1 else 1,
            "topology.executor.receive.buffer.size": 65536,
            "topology.disable.loadaware.messaging": True,
            "topology.stats.sample.rate": 0.0005,
            "topology.message.timeout.secs": 900,
            "topology.worker.childopts": f"-Xms{self.heap} -Xmx{self.heap} -XX:+UseParallelGC",
        }
        return [f"{key}={str(value).lower() if value is True else value}" for key, value in values.items()]


@dataclass(frozen=True)
class Progress:
    """Of all spout tasks at one moment."""

    at_ns: int
    acked: int
    failed: int
    histogram: list[int]


class Running:
    """A topology at work. Its cluster kills it when the block ends."""

    def __init__(
        self, cluster: Cluster, jar: Path, corpus: Corpus, setting: Setting, lines_per_sec: float = 0.0
    ) -> None:
        self.cluster, self.jar, self.corpus, self.setting = cluster, jar, corpus, setting
        self.lines_per_sec = lines_per_sec
        self.name = f"word-count-{time.monotonic_ns()}"
        self.directory = Path(tempfile.mkdtemp(dir=cluster.directory))

    def __enter__(self) -> Running:
        arguments = [str(self.corpus.path), str(self.directory), str(self.lines_per_sec), self.setting.split]
        self.cluster.run(self.jar, "submit", self.name, *arguments, *self.setting.arguments())
        deadline = time.monotonic() + _START_SECS
        while len(list(self.directory.glob("*.progress"))) < self.setting.spouts or not self.progress().acked:
            self.cluster.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"Storm acked nothing within {_START_SECS:g} s: {self.setting}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.run(self.jar, "kill", self.name)
        deadline = time.monotonic() + _START_SECS
        while self.cluster.workers() and time.monotonic() < deadline:
            time.sleep(0.1)

    def progress(self) -> Progress:
        """The sum over the tasks, at the mean of their moments."""
        found = [_read(path) for path in self.directory.glob("*.progress")]
        columns = list(zip(*found, strict=True))
        at, acked, failed = sum(columns[0]) // len(found), sum(columns[1]), sum(columns[2])
        return Progress(at, acked, failed, [sum(column) for column in columns[3:]])

    def measure(self, secs: float) -> tuple[Measured, list[int]]:
        """What is acked within so many seconds, and the histogram of how long it took."""
        before = self.progress()
        time.sleep(secs)
        after = self.progress()
        self.cluster.check()
        if after.failed:
            raise RuntimeError(f"Storm failed {after.failed} lines: {self.setting}")
        lines = after.acked - before.acked
        words = round(lines * self.corpus.words / self.corpus.lines)
        histogram = [late - early for late, early in zip(after.histogram, before.histogram, strict=True)]
        return Measured((after.at_ns - before.at_ns) / 1e9, lines, words), histogram


def _read(path: Path) -> Sequence[int]:
    """Nanoseconds, acked, failed and the histogram, from no moment of writing."""
    while True:
        data = path.read_bytes()
        if len(data) == _FORMAT.size:
            version, *rest = _FORMAT.unpack(data)
            if not version % 2 and path.read_bytes()[:8] == data[:8]:
                return rest
        time.sleep(0.001)
