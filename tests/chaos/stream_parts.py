"""Partitions that are far apart in time, what reads them, and what windows must make of them, by the input alone."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Any, NamedTuple

from squall import BasicBolt, BasicCollector, Tuple, Window, WindowedBolt
from squall.connect import Source
from squall.engine.api.replaying import Record
from tests.process.window_parts import Sums

Row = tuple[str, float, int]
FIELDS = "user", "at", "number"
BEGIN_MS, SPAN_MS = 1_700_000_000_000, 200_000
LAG_MS, LENGTH_MS = 1000, 10_000
SHAPES = [(20, 0.0, 1.0), (240, 0.0, 1.0), (100, 0.4, 2.0), (60, 0.0, 0.1)]
"""Of each partition of the topic: how many records it has, from when to when. They are apart by far more than the lag,
whichever is read first."""
FEES = {"east": 40, "west": 12}
"""Of each partition of the slow source, how many records it has."""


# ---- the input ----


def _rows(rng: random.Random, count: int, begin: float, end: float) -> list[Row]:
    """In order of time, but for the lag. Users are few, and so are numbers: some rows are equal."""
    times = sorted(rng.randrange(int(begin * SPAN_MS), int(end * SPAN_MS), 250) for _ in range(count))
    users = [f"rare{rng.randrange(9)}" if rng.random() < 0.02 else f"u{rng.randrange(4)}" for _ in times]
    return [
        (user, (BEGIN_MS + time_ms + rng.randrange(0, LAG_MS, 250)) / 1000, rng.randrange(4))
        for user, time_ms in zip(users, times, strict=True)
    ]


def topic(number: int) -> list[list[list[Row]]]:
    """The records of each partition. A record holds some rows, or none."""
    rng = random.Random(f"topic {number}")
    partitions = []
    for count, begin, end in rng.sample(SHAPES, len(SHAPES)):
        sizes = [rng.choice((0, 1, 1, 1, 2, 3)) for _ in range(count)]
        rows = iter(_rows(rng, sum(sizes), begin, end))
        partitions.append([[row for _, row in zip(range(size), rows, strict=False)] for size in sizes])
    return partitions


def fees(number: int) -> dict[str, list[Row]]:
    rng = random.Random(f"fees {number}")
    return {name: _rows(rng, count, 0.0, 2.0) for name, count in FEES.items()}


class Plan(NamedTuple):
    """How it is read, and into which windows."""

    slide_ms: int
    folds: bool
    tasks: int
    """Of each source: fewer than partitions."""
    fetch_bytes: int
    """How much of a partition comes at a time: a few records, or all of them before any of the next one."""


def plan_of(number: int) -> Plan:
    rng = random.Random(f"plan {number}")
    slide = rng.choice((LENGTH_MS, LENGTH_MS // 4))
    return Plan(slide, rng.random() < 0.5, rng.choice((1, 2)), rng.choice((300, 300, 1 << 20)))


# ---- what reads it ----


class Unpack(BasicBolt):
    outputs = FIELDS

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for row in tup["value"]:
            collector.emit(tuple(row))


class Fees(Source):
    """One partition after the other, with a pause after every few records."""

    outputs = FIELDS
    every_task = True
    partitioned = True

    def __init__(self, number: int) -> None:
        self.number = number

    def names(self) -> list[str]:
        return list(FEES)[self.context.task_index :: len(self.context.component_tasks(self.context.component_id))]

    def partitions(self) -> Mapping[tuple[Any, ...], bool]:
        return {} if self.at_end else {(name,): False for name in self.names()}

    def read_from(self, position: Mapping[str, tuple[str, int]] | None) -> Iterator[list[Record] | None]:
        for name in self.names():
            records: list[Record] = [((name, end), row) for end, row in enumerate(fees(self.number)[name], 1)]
            done = (position or {}).get(name, (name, 0))[1]
            for begin in range(done, len(records), 4):
                yield records[begin : begin + 4]
                yield None


class Joined(WindowedBolt):
    """Emits each pair of one user in one window; what has no partner, with None."""

    outputs = ("user", "start", "left", "right")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        sides: dict[str, list[int | None]] = {"unpack": [], "fees": []}
        for tup in window.get():
            sides[tup.source_component].append(tup["number"])
        for left, right in product(sides["unpack"] or [None], sides["fees"] or [None]):
            collector.emit((window.key, window.start, left, right))


# ---- what it must lead to ----


def _numbers(rows: Iterable[Row], slide: int) -> dict[tuple[str, int], list[int | None]]:
    """The numbers of each user in each window, by its start."""
    numbers: dict[tuple[str, int], list[int | None]] = defaultdict(list)
    for user, at, number in rows:
        at_ms = round(at * 1000)
        for start in range(at_ms - at_ms % slide, at_ms - LENGTH_MS, -slide):
            numbers[user, start].append(number)
    return numbers


def _of_topic(number: int) -> dict[tuple[str, int], list[Any]]:
    return _numbers(chain(*chain(*topic(number))), plan_of(number).slide_ms)


def _lines(outputs: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Counter[str]:
    return Counter(json.dumps(dict(zip(outputs, row, strict=True)), separators=(",", ":")) for row in rows)


def window_lines(number: int) -> Counter[str]:
    return _lines(Sums.outputs, (
        (user, start / 1000, (start + LENGTH_MS) / 1000, len(numbers), sum(numbers))
        for (user, start), numbers in _of_topic(number).items()
    ))


def joined_lines(number: int) -> Counter[str]:
    lefts, rights = _of_topic(number), _numbers(chain(*fees(number).values()), plan_of(number).slide_ms)
    return _lines(Joined.outputs, (
        (user, start / 1000, left, right) for user, start in lefts.keys() | rights.keys()
        for left, right in product(lefts.get((user, start), [None]), rights.get((user, start), [None]))
    ))
