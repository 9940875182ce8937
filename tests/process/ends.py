"""A source and a sink for tests of what is outside of a topology, and a topology between such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from squall import Topology, TopologyBuilder
from squall.connect import Sink, Source


class Numbers(Source):
    outputs = ("number", "raw")

    def __init__(self, end: int) -> None:
        self.end = end

    def read_from(self, position: int | None) -> Iterator[Any]:
        for number in range(position or 0, self.end):
            yield number + 1, (number, b"bytes")


class ToFile(Sink):
    """Writes the first column; its server is away until the file is there."""

    def __init__(self, path: Path, refuses: Callable[[Any], bool]) -> None:
        self.path, self.refuses = path, refuses

    def connect(self, context: Any) -> None:
        if not self.path.exists():
            raise ConnectionRefusedError("nobody listens")

    def write(self, batch: Any) -> dict[int, str]:
        values = batch.columns[0]
        with self.path.open("a") as file:
            file.writelines(f"{value}\n" for value in values if not self.refuses(value))
        return {row: f"{value} is refused" for row, value in enumerate(values) if self.refuses(value)}


def between(source: Any, *bolts: Any) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", source)
    before = "source"
    for place, bolt in enumerate(bolts):
        builder.set_bolt(f"bolt-{place}", bolt).shuffle_grouping(before)
        before = f"bolt-{place}"
    return builder.build()
