"""Measures several yardsticks in turn, round after round, so that a slow minute of the machine slows them all."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.corpus import Corpus
from benchmarks.measured import Measured, Unavailable

Run = Callable[[Corpus, int, int], Measured]


@dataclass(frozen=True)
class Yardstick:
    """Something to measure: its name in the table, how, on how many workers, and how often over the text."""

    name: str
    run: Run
    workers: int
    repeat: int
    rounds: int | None = None
    """How many of the rounds it is in; all by default. Its start may take far longer than what is measured."""


@dataclass
class Outcome:
    """What the rounds found of one yardstick."""

    name: str
    words_per_sec: list[float] = field(default_factory=list)
    lines_per_sec: list[float] = field(default_factory=list)
    missing: str | None = None
    """Why there is no figure, in one line."""

    @property
    def median(self) -> float:
        return statistics.median(self.words_per_sec)

    @property
    def median_lines(self) -> float:
        return statistics.median(self.lines_per_sec)

    def add(self, measured: Measured) -> None:
        self.words_per_sec.append(measured.words_per_sec)
        self.lines_per_sec.append(measured.lines_per_sec)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def alternate(yardsticks: Sequence[Yardstick], corpus: Corpus, rounds: int) -> list[Outcome]:
    """The outcome of each, in their order. One that cannot be had is asked once."""
    outcomes = {each.name: Outcome(each.name) for each in yardsticks}
    for number in range(rounds):
        for each in yardsticks:
            outcome = outcomes[each.name]
            if outcome.missing is None and number < (each.rounds or rounds):
                take(each, corpus, outcome)
    return list(outcomes.values())


def take(each: Yardstick, corpus: Corpus, outcome: Outcome) -> None:
    """Measure once more."""
    try:
        measured = each.run(corpus, each.workers, each.repeat)
    except Unavailable as why:
        outcome.missing = str(why)
        say(f"{each.name}: {why}")
        return
    outcome.add(measured)
    say(f"{each.name}: {measured.words_per_sec / 1e6:.2f} M words/s")
