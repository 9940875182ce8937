"""What `squall verify` is asked, and what it answers.

Guarantees that a request that contradicts itself is refused in one line. Imports no Spark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.compare.sides import Side

#: What is wrong with a key. Duplicated: a side has it more than once, so it cannot be told which row to compare.
KINDS = ("missing", "extra", "duplicated", "different")
EQUAL = "equal"
_AMOUNTS = "a number from 0 (0.01), a percentage (1%), or one of them for a column (p99_ms=0.5)"


@dataclass(frozen=True)
class Tolerance:
    """Numbers a and b are equal if |a - b| <= absolute, or |a - b| <= relative * max(|a|, |b|)."""

    absolute: float = 0.0
    relative: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.absolute or self.relative)


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Tolerances by column, "" for all others. An absolute and a relative one may both hold for a column."""
    found: dict[str, Tolerance] = {}
    for text in texts:
        column, equals, amount = text.rpartition("=")
        try:
            size = float(amount.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not (math.isfinite(size) and size >= 0) or (equals and not column):
            raise UsageError(f"--tolerance is {repr_of(text)}; give {_AMOUNTS}")
        change = {"relative": size / 100} if amount.endswith("%") else {"absolute": size}
        found[column] = replace(found.get(column, Tolerance()), **change)
    return found


@dataclass(frozen=True)
class Request:
    """What to compare, and how. `compare`: None for all columns that are not of the key."""

    by: tuple[str, ...]
    compare: tuple[str, ...] | None = None
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    repeats: bool = False
    """Whether a side may have the same row several times, as at-least-once output has."""
    last: str | None = None
    """Of rows with one key, only the row with the largest value in this column counts, on each side that has it."""
    examples: int = 10
    """Most differences of each kind that are named."""

    def __post_init__(self) -> None:
        named = (*self.by, *(self.compare or ()))
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"--by and --compare name {twice!r} twice; a column is of the key, or compared")

    def tolerance(self, column: str) -> Tolerance:
        return self.tolerances.get(column) or self.tolerances.get("", Tolerance())


@dataclass(frozen=True)
class Difference:
    """A key that is not equal on both sides. `values` holds the values, left and right, of columns that differ."""

    kind: str
    key: dict[str, Any]
    rows: tuple[int, int]
    values: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class ColumnCheck:
    """A compared column: the number of keys that differ in it, and the largest difference of its numbers."""

    different: int
    largest: float | None
    tolerance: Tolerance
    unmeasured: int = 0
    """Numbers that differ without a difference: null, NaN, an infinity, or too little for a double to tell."""


@dataclass(frozen=True)
class Comparison:
    """The outcome. `rows`: of the left and the right. `repeated`: the rows beyond the first of a key."""

    sides: tuple[Side, Side]
    rows: tuple[int, int]
    repeated: tuple[int, int]
    keys: dict[str, int]
    columns: dict[str, ColumnCheck]
    examples: tuple[Difference, ...] = ()

    @property
    def passed(self) -> bool:
        return not any(self.keys[kind] for kind in KINDS)
