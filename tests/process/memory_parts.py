"""Components that fill memory, if they are let."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, ReplayingSpout, Tuple


class Loads(ReplayingSpout):
    """`count` values of `size` bytes, each an object of its own."""

    outputs = ("n", "data")

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(self.count):
            yield n, (n, bytes([n % 251]) * self.size)


class WaitsFor(BasicBolt):
    """On a thread: does nothing before a file is there. Then it checks what came."""

    blocking = True

    def __init__(self, path: str) -> None:
        self.path = path

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] == 0:
            while not Path(self.path).exists():
                threading.Event().wait(0.01)
        assert tup["data"] == bytes([tup["n"] % 251]) * len(tup["data"])


class HugeWhenSent:
    """Takes more memory than there is address space when it is encoded."""

    def __reduce__(self) -> Any:
        return bytes, (bytes(1 << 62),)


def allocate_once(mark: str) -> bytes:
    if not Path(mark).exists():
        Path(mark).touch()
        return bytes(1 << 62)
    return b""


class HugeWhenReceived:
    """The same when it is decoded, for the first time."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return allocate_once, (self.mark,)


class OneIsHuge(ReplayingSpout):
    """0 .. count-1, and with the middle one, in a list, what `kind(*arguments)` makes."""

    outputs = ("n", "data")

    def __init__(self, count: int, kind: type, *arguments: Any) -> None:
        self.count = count
        self.kind = kind
        self.arguments = arguments

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(self.count):
            yield n, (n, [self.kind(*self.arguments)] if n == self.count // 2 else [])


class GoesRound(BasicBolt):
    """Appends a byte to what it gets and emits it, until it is `most_bytes` long."""

    outputs = ("n", "data")

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if len(tup["data"]) < self.most_bytes:
            collector.emit((tup["n"], tup["data"] + b"x"))
