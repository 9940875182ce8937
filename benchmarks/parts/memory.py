"""Bytes that tracking costs for each tree."""

from __future__ import annotations

from benchmarks import acker_memory
from benchmarks.effort import Effort
from benchmarks.results import Part


def measure(effort: Effort) -> Part:
    return Part(
        title="Memory of tracking",
        about="What Python allocates, by tracemalloc, just before a dict is enlarged and just after.",
        header=["what", "figure", "goal"],
        rows=[[cell.strip() for cell in row.strip("|").split("|")] for row in acker_memory.rows()],
    )
