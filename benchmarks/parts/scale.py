"""What more workers, tasks, components and topologies cost: start, processor time of the parent, memory, throughput."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.effort import Effort
from benchmarks.results import Curve, Part, Plot
from benchmarks.rounds import say
from benchmarks.scaling import Grown, grow_components, grow_tasks, grow_topologies, grow_workers

_SIZES = {
    "workers": (grow_workers, (1, 2, 4, 8, 16), (1, 4)),
    "tasks": (grow_tasks, (16, 1000, 4000, 10_000), (1000,)),
    "components": (grow_components, (4, 50, 200), (50,)),
    "topologies": (grow_topologies, (10, 50), (10,)),
}
"""What grows, and its sizes, all and few."""


def measure(effort: Effort) -> Part:
    found: dict[str, list[Grown]] = {}
    for name, (grow, sizes, few) in _SIZES.items():
        found[name] = []
        for size in few if effort.quick else sizes:
            found[name].append(grow(size, effort))
            say(f"{size} {name}: {found[name][-1]}")
    # One topology on one worker is measured among the workers.
    found["topologies"].insert(0, replace(found["workers"][0], lines_per_sec=None))
    rows = [
        [
            f"{grown.size:,} {name}", f"{grown.start_secs:.2f} s", f"{grown.start_cpu_secs:.2f} s",
            f"{grown.start_cpu_secs / grown.size * 1e3:.1f} ms", f"{grown.memory_mib:.0f} MiB",
            f"{grown.idle_share * 100:.2f} %",
            "" if grown.lines_per_sec is None else f"{grown.lines_per_sec / 1e3:.0f}",
        ]
        for name, each in found.items() for grown in each
    ]  # fmt: skip
    curves = [
        Curve(name, [float(grown.size) for grown in each], [grown.start_secs for grown in each])
        for name, each in found.items()
    ]
    return Part(
        title="Scale",
        about="From submitting to every task ready, and the processor time of that, in all and for each; memory of all "
        "processes, a page that n share\ncounted as an n-th; the share of a core that all of them take while idle; "
        "lines of a word count per second. Tasks and components are on\ntwo workers. "
        "One run of each size.",
        header=["how many", "start", "processor time", "each", "memory", "idle", "k lines/s"],
        rows=rows,
        plots=[Plot("scale", "From submitting to every task ready", "how many", "s", curves, log=True)],
    )
