"""Tuples per second through three stages, and from one task to all of several."""

from __future__ import annotations

import statistics

from benchmarks.batch_word_count import PENDING
from benchmarks.drained import run_until_drained
from benchmarks.effort import Effort
from benchmarks.numbers import fan_out, three_stages
from benchmarks.results import Part
from benchmarks.rounds import say
from squall import Config, LocalCluster, Topology

WORKERS = 2
FAN = 8


def measure(effort: Effort) -> Part:
    size = 100_000 * effort.repeat
    # Name -> a topology, the tuples that its bolts execute.
    shapes: dict[str, tuple[Topology, int]] = {
        "three stages, rows": (three_stages(size // 2, WORKERS, False), size * 2),
        "three stages, batches": (three_stages(size * 4, WORKERS, True), size * 16),
        f"one task to all of {FAN}, rows": (fan_out(size // 2, FAN, False), size // 2 * FAN),
        f"one task to all of {FAN}, batches": (fan_out(size * 2, FAN, True), size * 2 * FAN),
    }
    rates: dict[str, list[float]] = {name: [] for name in shapes}
    config = Config(workers=WORKERS, max_spout_pending=PENDING)
    with LocalCluster(slots_per_node=WORKERS) as cluster:
        for _ in range(effort.rounds):
            for name, (topology, executed) in shapes.items():
                rates[name].append(executed / run_until_drained(topology, config, cluster=cluster)[0])
                say(f"{name}: {rates[name][-1] / 1e6:.2f} M tuples/s")
    return Part(
        title="Passing on and fanning out",
        about=f"Numbers through bolts that do nothing, {WORKERS} workers, every tuple tracked; what bolts execute.",
        header=["what", "M tuples/s", "least to most"],
        rows=[
            [name, f"{statistics.median(found) / 1e6:.2f}", f"{min(found) / 1e6:.2f} to {max(found) / 1e6:.2f}"]
            for name, found in rates.items()
        ],
    )
