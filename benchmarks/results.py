"""What the benchmarks found, kept as JSON; RESULTS.md and the figures are made from it.

A part is measured, and replaced, as a whole. Parts measured at other times, as Storm's, stay.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.rounds import Outcome

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results.json"
RESULTS = HERE / "RESULTS.md"
FIGURES = HERE / "figures"


def this_machine() -> str:
    """Processor, cores, memory, kernel and interpreter."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model}), {gib:.0f} GiB, Linux {platform.release().partition('-')[0]}, "
        f"CPython {platform.python_version()}"
    )


@dataclass(frozen=True)
class Curve:
    """A line of a plot."""

    label: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Plot:
    """A plot of curves; without curves, of bars with their whiskers from least to most."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: list[Curve] = field(default_factory=list)
    log: bool = False
    bars: list[tuple[str, float, float, float]] = field(default_factory=list)
    """Name, median, least and most."""


@dataclass
class Part:
    """A section of the results: a table, what was run, and plots."""

    title: str
    about: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    command: str = "make bench"
    measured: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    machine: str = field(default_factory=this_machine)


def throughput_rows(outcomes: Sequence[Outcome], beside: Sequence[str]) -> list[list[str]]:
    """A row for each outcome: its rate, its spread, and its ratio to the outcomes named in `beside`."""
    by_name = {outcome.name: outcome for outcome in outcomes}
    rows = []
    for outcome in outcomes:
        if outcome.missing is not None:
            rows.append([outcome.name, f"not measured: {outcome.missing}", *[""] * (len(beside) + 1)])
            continue
        least, most = min(outcome.words_per_sec) / 1e6, max(outcome.words_per_sec) / 1e6
        cells = [outcome.name, f"{outcome.median / 1e6:.2f}", f"{least:.2f} to {most:.2f}"]
        for name in beside:
            base = by_name.get(name)
            cells.append("" if base is None or base.missing is not None else f"{outcome.median / base.median:.2f}")
        rows.append(cells)
    return rows


def bars_of(outcomes: Sequence[Outcome]) -> list[tuple[str, float, float, float]]:
    return [
        (each.name, each.median / 1e6, min(each.words_per_sec) / 1e6, max(each.words_per_sec) / 1e6)
        for each in outcomes
        if each.missing is None
    ]


def keep(parts: dict[str, Part], path: Path = KEPT) -> dict[str, Part]:
    """Replace these parts of what is kept. All parts, in the order in which they were first kept."""
    every = {**read_kept(path), **parts}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({name: asdict(part) for name, part in every.items()}, indent=1) + "\n")
    os.replace(fresh, path)
    return every


def read_kept(path: Path = KEPT) -> dict[str, Part]:
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())
    for part in kept.values():
        for plot in part["plots"]:
            plot["curves"] = [Curve(**curve) for curve in plot["curves"]]
            plot["bars"] = [(name, middle, least, most) for name, middle, least, most in plot["bars"]]
        part["plots"] = [Plot(**plot) for plot in part["plots"]]
    return {name: Part(**part) for name, part in kept.items()}


def render(parts: dict[str, Part]) -> str:
    """RESULTS.md."""
    head = (
        "# Results\n\nWritten by the commands named; medians of runs in turn with the least and the most, or as a part "
        "says. Compare within a\ntable, which is of one run: the speed of a shared machine changes by the hour. The "
        "figures are in\n[results.json](results.json), what they mean in [NOTES.md](NOTES.md).\n"
    )
    return "\n".join((head, *map(section, parts.values())))


def section(part: Part) -> str:
    """One part of it."""
    lines = [f"## {part.title}", "", part.about, "", f"`{part.command}`, {part.measured}, on {part.machine}.", ""]
    lines.append("| " + " | ".join(part.header) + " |")
    lines.append("| " + " | ".join("---" for _ in part.header) + " |")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in part.rows]
    for plot in part.plots:
        lines += ["", f"![{plot.title}](figures/{plot.name}.svg)"]
    return "\n".join((*lines, ""))
