"""Draws plots as SVG. Relies on matplotlib, which the extra `bench` has.

The same figures make the same bytes, so that a file changes only when its figures do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.results import Part, Plot

_STYLE: Any = {"svg.hashsalt": "squall", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
          "axes.spines.right": False}  # fmt: skip


def draw_all(parts: Iterable[Part], directory: Path) -> None:
    """Write NAME.svg for every plot."""
    import matplotlib

    matplotlib.use("svg")
    directory.mkdir(exist_ok=True)
    with matplotlib.rc_context(_STYLE):
        for part in parts:
            for plot in part.plots:
                _draw(plot, directory / f"{plot.name}.svg")


def _draw(plot: Plot, path: Path) -> None:
    from matplotlib import pyplot

    height = 0.5 + 0.3 * len(plot.bars) if plot.bars else 3.6
    figure, axes = pyplot.subplots(figsize=(7.2, max(2.0, height)), layout="constrained")
    (_bars if plot.bars else _curves)(axes, plot)
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _bars(axes: Any, plot: Plot) -> None:
    names = [name for name, *_ in plot.bars]
    middle = [median for _, median, _, _ in plot.bars]
    spread = [
        [median - least for _, median, least, _ in plot.bars],
        [most - median for _, median, _, most in plot.bars],
    ]
    colours = ["#1f6f8b" if name.startswith("Squall") else "#b0b7bd" for name in names]
    axes.barh(names, middle, xerr=spread, color=colours, ecolor="#444444", capsize=2)
    axes.invert_yaxis()
    for at, median in enumerate(middle):
        axes.annotate(f" {median:.2f}", (plot.bars[at][3], at), va="center")


def _curves(axes: Any, plot: Plot) -> None:
    for curve in plot.curves:
        axes.plot(curve.x, curve.y, marker="o", markersize=3, label=curve.label)
    if plot.log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
