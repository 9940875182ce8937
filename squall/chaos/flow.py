"""Measures how many messages a seed had acked a second: between its faults, and over all.

Guarantees: a time is between faults if no fault was in force, and every process that died was at work again. Only whole
intervals between two samples count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from squall.chaos.trial import Outcome


@dataclass(frozen=True)
class Flow:
    """Acked messages a second; 0 if there was no such time."""

    between: float
    between_secs: float
    overall: float


def flow(outcome: Outcome) -> Flow:
    """The flow from the start to the end of the last fault."""
    windows = _merged([*_faults(outcome), *_absences(outcome)])
    acked = secs = 0.0
    samples = [sample for sample in outcome.samples if sample.at_secs <= outcome.healed_secs]
    for before, after in pairwise(samples):
        if not any(began < after.at_secs and before.at_secs < ended for began, ended in windows):
            acked += after.acked - before.acked
            secs += after.at_secs - before.at_secs
    whole_secs = samples[-1].at_secs - samples[0].at_secs if samples else 0.0
    whole = samples[-1].acked - samples[0].acked if samples else 0
    return Flow(
        round(acked / secs, 1) if secs else 0.0, round(secs, 3), round(whole / whole_secs, 1) if whole_secs else 0.0
    )


def _faults(outcome: Outcome) -> Iterable[tuple[float, float]]:
    for one in outcome.injected:
        if not one.missed:
            yield one.began_secs - outcome.started_secs, one.ends_secs - outcome.started_secs


def _absences(outcome: Outcome) -> Iterable[tuple[float, float]]:
    """From each death until the replacement worked; to the end, if it is not known."""
    for death in outcome.deaths:
        away_secs = death.working_after_secs or death.ready_after_secs
        yield death.at_secs, outcome.healed_secs if away_secs is None else death.at_secs + away_secs


def _merged(windows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for began, ended in sorted(windows):
        if found and began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((began, ended))
    return found
