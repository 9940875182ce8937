"""A topology that counts numbers by their remainder: the counts are attributes of its bolts and nowhere else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, ReplayingSpout, Topology, TopologyBuilder, TopologyContext, Tuple

NUMBERS, KEYS = 20_000, 101
EXPECTED = Counter(f"k{number % KEYS}" for number in range(NUMBERS))


class Numbers(ReplayingSpout):
    outputs = ("number",)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.index = context.task_index

    def read(self) -> Iterator[tuple[Any, Any]]:
        for number in range(self.index, NUMBERS, 2):
            yield number, (number,)


class Key(BasicBolt):
    outputs = ("key",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((f"k{tup['number'] % KEYS}",))


class Count(BasicBolt):
    def __init__(self, out: str) -> None:
        self.out = out

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.index = context.task_index
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup["key"]] += 1

    def cleanup(self) -> None:
        Path(self.out, f"{self.index}.json").write_text(json.dumps(self.counts))


def topology(args: list[str]) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(), parallelism=2)
    builder.set_bolt("key", Key(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("count", Count(args[0]), parallelism=2).fields_grouping("key", "key")
    return builder.build()


def counted(out: Path) -> Counter[str]:
    """What all tasks have counted."""
    counts: Counter[str] = Counter()
    for path in sorted(out.glob("*.json")):
        counts.update(json.loads(path.read_text()))
    return counts
