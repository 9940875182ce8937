"""Values that can be made, and not read, or not sent, or not held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import ReplayingSpout, Spout, SpoutCollector, TopologyContext, Tuple, bolt

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


class HugeWhenSent:
    """Takes more memory than there is address space when it is encoded."""

    def __reduce__(self) -> Any:
        return bytes, (bytes(1 << 62),)


class HugeWhenReceived:
    """The same when it is decoded, for the first time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return allocate_once, (self.mark,)


def allocate_once(mark: Path) -> bytes:
    if not mark.exists():
        mark.touch()
        return bytes(1 << 62)
    return b""


class OneIsBad(ReplayingSpout):
    """0 .. COUNT-1, and with one of them, in a list, a bad value: an emit looks at new types only."""

    outputs = ("n", "data")

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(COUNT):
            yield n, (n, [self.make()] if n == VICTIM else [bytes(n * 1000), "text"])


class Untracked(Spout):
    """The same, without message ids."""

    outputs = ("n", "data")

    def __init__(self, make: Callable[[], Any]) -> None:
        self.records = OneIsBad(make).read

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.left = collector, self.records()

    def next_tuple(self) -> None:
        for _, values in self.left:
            self.collector.emit(values)
            return
        self.exhausted = True


@bolt
def checks(tup: Tuple) -> None:
    """What else there is must arrive as it was."""
    assert tup["n"] == VICTIM or tup["data"] == [bytes(tup["n"] * 1000), "text"]
