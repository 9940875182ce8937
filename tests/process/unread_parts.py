"""Values that can be made, and not read, or not sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    ReplayingSpout,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

COUNT, VICTIM = 200, 77


class Unreadable:
    """Sent as its class says, and refused where it is read."""

    def __reduce__(self) -> Any:
        return refuse, ()


class Unsendable:
    """Refused where it is sent."""

    def __reduce__(self) -> Any:
        return refuse()


def refuse() -> Any:
    raise SystemExit("not this one")


class OneIsBad(ReplayingSpout):
    """0 .. COUNT-1, and with one of them, in a list, a bad value: an emit looks at new types only."""

    outputs = ("n", "data")

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(COUNT):
            yield n, (n, [self.kind()] if n == VICTIM else [bytes(n * 1000), "text"])


class Checks(BasicBolt):
    """What else there is must arrive as it was."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert tup["data"] == [bytes(tup["n"] * 1000), "text"]


class Untracked(Spout):
    """The same, without message ids."""

    outputs = ("n", "data")

    def __init__(self, kind: type) -> None:
        self.records = OneIsBad(kind).read

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.left = collector, self.records()

    def next_tuple(self) -> None:
        for _, values in self.left:
            self.collector.emit(values)
            return
        self.exhausted = True


def topology(kind: type, source: type[Any] = OneIsBad) -> Topology:
    """Its bolt's only task is in another worker than the spout's where there are two."""
    builder = TopologyBuilder()
    builder.set_spout("source", source(kind))
    builder.set_bolt("zink", Checks()).fields_grouping("source", "n")
    return builder.build()


def unreadable(args: list[str]) -> Topology:
    return topology(Unreadable)


def unsendable(args: list[str]) -> Topology:
    return topology(Unsendable)
