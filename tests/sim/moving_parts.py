"""A source of four partitions that move between two tasks, joined with a slow one in windows by event time, for the
lives of state.

Each partition is in the order of its timestamps, and each begins at another time; positions leave numbers out; one key
is rare. What is acked up to there is kept for each partition, as a broker does. The slow source begins anew when it
dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import ReplayingSpout, Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext
from tests.process import window_parts as windowed

PARTITIONS, RECORDS, STEP = 4, 40, 3
"""Of each partition, the records; a record's position is a multiple of STEP."""
TASKS = 2
SLOW = 0
"""The slow source has the records of this partition, too."""


def record(partition: int, number: int) -> tuple[str, float, int]:
    """User, time and number of a record: 50 ms from one to the next."""
    user = "rare" if partition == 3 and number % 20 == 7 else f"u{number % 3}"
    return user, partition * 0.75 + number / 16, partition * RECORDS + number


def expected(length: float = 0.5) -> Counter[tuple[str, float]]:
    """(user, start) of a window -> its records."""
    partitions = [*range(PARTITIONS), SLOW]
    rows = [record(partition, number) for partition in partitions for number in range(RECORDS)]
    return Counter((user, at // length * length) for user, at, _ in rows)


class Moving(Spout):
    """Reads the partitions that are its at the moment: a number in a file says how often they have moved."""

    outputs = ("user", "at", "number")
    record_identity = "partition"

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.index, self.directory = collector, context.task_index, Path(context.shared_state_dir)
        self.next: dict[int, int] = {}
        """Of each partition that it reads, the number of the next record."""
        self.open_: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
        self.failed: list[tuple[int, int]] = []

    def committed(self, partition: int) -> int:
        file = self.directory / f"committed-{partition}"
        return int(file.read_text()) if file.exists() else 0

    def _assign(self) -> None:
        file = self.directory / "moves"
        moves = int(file.read_text()) if file.exists() else 0
        own = {partition for partition in range(PARTITIONS) if (partition + moves) % TASKS == self.index}
        self.next = {one: self.next[one] if one in self.next else self.committed(one) for one in own}

    def next_tuple(self) -> None:
        self._assign()
        if self.failed:
            return self._emit(*self.failed.pop())
        if unread := [partition for partition, number in self.next.items() if number < RECORDS]:
            partition = min(unread, key=lambda partition: self.next[partition])
            self.next[partition] += 1
            self._emit(partition, self.next[partition] - 1)
        return None

    def _emit(self, partition: int, number: int) -> None:
        self.open_[partition].add(number)
        self.collector.emit(record(partition, number), message_id=(f"p{partition}", number * STEP))

    def ack(self, message_id: Any) -> None:
        partition, number = int(message_id[0][1:]), message_id[1] // STEP
        self.open_[partition].discard(number)
        if partition in self.next:
            done = min(self.open_[partition], default=self.next[partition])
            if done > self.committed(partition):
                (self.directory / f"committed-{partition}").write_text(str(done))

    def fail(self, message_id: Any) -> None:
        self.failed.append((int(message_id[0][1:]), message_id[1] // STEP))

    def partitions(self) -> Mapping[tuple[Any, ...], bool]:
        # Also of the other task: one that moves is not to be passed meanwhile.
        return {(f"p{one}",): False for one in range(PARTITIONS) if self.committed(one) < RECORDS}

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.failed and all(self.committed(one) >= RECORDS for one in range(PARTITIONS))


class Slow(ReplayingSpout):
    """Has a record each fourth time that it is asked."""

    outputs = Moving.outputs

    def read(self) -> Iterator[tuple[int, tuple[str, float, int]] | None]:
        for number in range(RECORDS):
            yield from [None] * 3
            yield number, record(SLOW, number)


class Counts(windowed.Folded):
    outputs = ("user", "start", "count")

    def execute_window(self, window: Any, collector: Any) -> None:
        collector.emit((window.key, window.start, window.value[0]))


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("moving", Moving(), parallelism=TASKS)
    builder.set_spout("slow", Slow())
    builder.set_bolt("pass_on", windowed.PASS_ON, parallelism=2).shuffle_grouping("moving")
    windows = Counts().with_tumbling_window(secs=0.5).with_key("user").with_timestamp_field("at")
    joined = builder.set_bolt("sums", windows, parallelism=2)
    joined.fields_grouping("pass_on", "user").fields_grouping("slow", "user")
    builder.set_bolt("keep", windowed.Keep()).global_grouping("sums")
    return builder.build()
