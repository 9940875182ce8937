"""What `squall verify --by` is asked, and what it answers. Decides and holds; `pipeline/compare.py` does the work.

Guarantees that a request that contradicts itself is refused in one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from squall.engine.errors import UsageError
from squall.pipeline.side import Side
from squall.pipeline.tolerance import Tolerance, Tolerances

#: What is wrong with a key. Duplicated: on one of the sides more than once, so no telling which row to compare.
KINDS = ("missing", "extra", "duplicated", "different")
EQUAL = "equal"
MAX_EXAMPLES = 1000


@dataclass(frozen=True)
class Request:
    """What to compare, and how. `compare`: None for all columns that are not of the key."""

    by: tuple[str, ...]
    compare: tuple[str, ...] | None = None
    tolerances: Tolerances = field(default_factory=Tolerances)
    repeats: bool = False
    """Whether a side may have the same row several times, as at-least-once output has."""
    last: str | None = None
    """Of rows with one key, only that with the largest value in this column counts, on each side that has it."""
    examples: int = 10
    """Most differences of each kind that are named."""

    def __post_init__(self) -> None:
        if not self.by:
            raise UsageError("--by names no column; allowed: one or more columns that are a row's key")
        for option, names in (("--by", self.by), ("--compare", self.compare or ())):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(f"{option} names {twice!r} twice; allowed: different columns")
        both = next((name for name in self.compare or () if name in self.by), None)
        if both is not None:
            raise UsageError(f"--compare names {both!r}, which is of the key; allowed: other columns")
        if not 0 <= self.examples <= MAX_EXAMPLES:
            raise UsageError(f"--examples is {self.examples}; allowed: 0 to {MAX_EXAMPLES}")


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
    """The outcome. `rows`: of the left and the right. `repeated`: of these, those beyond the first of a key."""

    sides: tuple[Side, Side]
    rows: tuple[int, int]
    repeated: tuple[int, int]
    keys: dict[str, int]
    columns: dict[str, ColumnCheck]
    examples: tuple[Difference, ...] = ()

    @property
    def passed(self) -> bool:
        return not any(self.keys[kind] for kind in KINDS)
