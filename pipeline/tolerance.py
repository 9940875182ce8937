"""How far two numbers may differ and still be equal: what `squall verify --tolerance` says.

Guarantees a UsageError that names the text and what is allowed. Decides only; `pipeline/compare.py` applies it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of

_ALLOWED = "a number from 0 (0.01), a percentage (1%), or one of them for a column (p99_ms=0.5)"


@dataclass(frozen=True)
class Tolerance:
    """Numbers a and b are equal if |a - b| <= absolute, or |a - b| <= relative * max(|a|, |b|), in double precision."""

    absolute: float = 0.0
    relative: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.absolute or self.relative)


@dataclass(frozen=True)
class Tolerances:
    """`everywhere` holds for all columns of numbers that have none of their own."""

    everywhere: Tolerance = Tolerance()
    columns: dict[str, Tolerance] = field(default_factory=dict)

    def of(self, column: str) -> Tolerance:
        return self.columns.get(column, self.everywhere)


def parse_tolerances(texts: Sequence[str]) -> Tolerances:
    """Join what was given: an absolute and a relative one may both hold; of two of one kind, the last."""
    everywhere, columns = Tolerance(), dict[str, Tolerance]()
    for text in texts:
        column, equals, amount = text.rpartition("=")
        if equals and not column:
            raise UsageError(f"--tolerance is {repr_of(text)}; allowed: {_ALLOWED}")
        name, size = _amount(text, amount)
        if column:
            columns[column] = replace(columns.get(column, Tolerance()), **{name: size})
        else:
            everywhere = replace(everywhere, **{name: size})
    return Tolerances(everywhere, columns)


def _amount(text: str, amount: str) -> tuple[str, float]:
    percent = amount.endswith("%")
    try:
        size = float(amount.removesuffix("%"))
    except ValueError:
        size = math.nan
    if not (math.isfinite(size) and size >= 0):
        raise UsageError(f"--tolerance is {repr_of(text)}; allowed: {_ALLOWED}")
    return ("relative", size / 100) if percent else ("absolute", size)
