"""The inputs of a task, by number: so tuples are kept, in a store or in memory, without what they have in common.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from squall.engine.api.stream import Stream
from squall.engine.api.tuple import UNTRACKED, Tuple, TupleSource

Row = tuple[int, tuple[Any, ...]]
"""The number of an input, and the values of a tuple."""


class Read(NamedTuple):
    """How a component reads a stream."""

    component: str
    stream: str
    fields: tuple[str, ...]
    grouping: str
    by: tuple[str, ...]
    """The fields that it is grouped by."""


class Inputs:
    """All inputs of a task."""

    def __init__(self, reads: Sequence[Read]) -> None:
        self._sources = [TupleSource(read.component, 0, read.stream, Stream(*read.fields)) for read in reads]
        self._numbers = {(read.component, read.stream): number for number, read in enumerate(reads)}

    def number(self, source: TupleSource) -> int:
        """The number of the input that tuples come from."""
        return self._numbers[source.component, source.stream]

    def tuple(self, row: Row) -> Tuple:
        """A tuple as it was; its task is not known any more."""
        return Tuple(row[1], self._sources[row[0]], UNTRACKED)
