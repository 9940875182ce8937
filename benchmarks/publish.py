"""Prints parts of the results, and keeps them unless told not to: JSON, RESULTS.md and the figures."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.results import FIGURES, RESULTS, Part, keep, render, section
from benchmarks.rounds import say


def publish(parts: dict[str, Part], write: bool) -> None:
    for part in parts.values():
        print(section(part if write else replace(part, plots=[])))
    if not write:
        return
    every = keep(parts)
    RESULTS.write_text(render(every))
    try:
        from benchmarks.figures import draw_all

        draw_all(every.values(), FIGURES)
    except ImportError as error:
        say(f"no figures drawn: {error.name} is not installed (the extra `bench` has it)")
