"""The outcome of one run of a yardstick, and why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A word count: what was counted, in how long. The time of starting is left out."""

    secs: float
    lines: int
    words: int

    @property
    def words_per_sec(self) -> float:
        return self.words / self.secs

    @property
    def lines_per_sec(self) -> float:
        return self.lines / self.secs


class Unavailable(Exception):
    """This yardstick cannot be had on this machine: why, in one line for the table."""
