"""The inputs of a task, by number: so tuples are kept, in a store or in memory, without what they have in common.

Pure. Thread: any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.engine.api.stream import Stream
from squall.engine.api.tuple import UNTRACKED, Tuple, TupleSource

Input = tuple[str, str, tuple[str, ...]]
"""Component, stream and fields."""
Row = tuple[int, tuple[Any, ...]]
"""The number of an input, and the values of a tuple."""


class Inputs:
    """All inputs of a task."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._sources = [TupleSource(component, 0, stream, Stream(*fields)) for component, stream, fields in inputs]
        self._numbers = {(component, stream): number for number, (component, stream, _) in enumerate(inputs)}

    def number(self, source: TupleSource) -> int:
        """The number of the input that tuples come from."""
        return self._numbers[source.component, source.stream]

    def tuple(self, row: Row) -> Tuple:
        """A tuple as it was; its task is not known any more."""
        return Tuple(row[1], self._sources[row[0]], UNTRACKED)
