"""The model check of the tracking, in short; `make prove` runs all of it."""

from __future__ import annotations

import pytest

from tests.sim.jobs import SHORT_SEARCHES, search
from tests.sim.mutants import MUTANTS
from tests.sim.parts import Parts
from tests.sim.schedule import Case, breaks, find
from tests.sim.shapes import SHAPES

RANDOM_CASES = 2000


@pytest.mark.parametrize(("shape", "faults"), SHORT_SEARCHES)
def test_every_schedule_of_a_small_tree(shape: str, faults: str) -> None:
    assert search(shape, faults).wrong == ""


def test_random_schedules(seed: int) -> None:
    finding = find(range(seed, seed + RANDOM_CASES), Parts())
    assert finding is None, str(finding)


def test_random_schedules_find_out_too_and_each_action_that_is_shown_is_needed() -> None:
    [parts] = [mutant.parts for mutant in MUTANTS if mutant.off == "link dedupe"]
    finding = find(range(2000), parts)
    assert finding is not None
    assert f"seed {finding.case.seed}" in str(finding)
    schedule = finding.smallest.schedule
    for index in range(len(schedule)):
        rest = Case(finding.case.seed, finding.case.shape, schedule[:index] + schedule[index + 1 :])
        error = breaks(rest, parts)
        assert error is None or error.invariant != finding.error.invariant


def test_deaths_that_one_look_finds_are_all_known_before_any_tree_fails() -> None:
    """Two workers die, the spout's is replaced; the acker's worker sees all of it at once, with the new spout's INIT.
    One in a million random schedules is like this."""
    again = (("kill", 1), ("bury", 1), ("restart", 1))
    schedule = (
        *again, ("kill", 0), *again, ("bury", 0), ("emit", None), ("send", 1), ("deliver", (1, 2)),
    )
    error = breaks(Case(0, SHAPES["two ackers"], schedule), Parts())
    assert error is None, str(error)
