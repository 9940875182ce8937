"""Skewed topologies with and without what keeps workers busy: shuffles that follow waits, limits that are found out."""

from __future__ import annotations

import statistics

from benchmarks.effort import Effort
from benchmarks.results import Part
from benchmarks.rounds import say
from benchmarks.skewed import CASES, PENDING, WORKERS, Figures, measure
from squall import LocalCluster


def measure_part(effort: Effort) -> Part:
    rows = []
    for case in CASES[:1] if effort.quick else CASES:
        off, on = [], []
        with LocalCluster(slots_per_node=WORKERS) as cluster:
            for _ in range(effort.rounds):
                off.append(measure(cluster, case, case.off, effort.skewed_secs))
                on.append(measure(cluster, case, {}, effort.skewed_secs))
                say(f"{case.name}: {off[-1].per_sec:,.0f}/s off, {on[-1].per_sec:,.0f}/s on")
        rows.append([case.name, *_compared(off, on)])
    return Part(
        title="Balance",
        about=f"Two workers; off: `even_shuffle`, in the last row a limit of {PENDING:,} open messages. "
        f"Medians of {effort.rounds} in turn\n(least to most).",
        header=["what", "messages/s, off", "on", "ratio", "p50 ms, off", "on", "ratio"],
        rows=rows,
    )


def _compared(off: list[Figures], on: list[Figures]) -> list[str]:
    """Median of each figure with the least and the most, and the ratio of medians."""
    cells = []
    for at in range(2):
        found = [[figures[at] for figures in each] for each in (off, on)]
        before, now = map(statistics.median, found)
        cells += [f"{statistics.median(each):,.1f} ({min(each):,.0f} to {max(each):,.0f})" for each in found]
        cells.append(f"{now / before:.2f}")
    return cells
