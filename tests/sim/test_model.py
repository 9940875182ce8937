"""The model check of the tracking, in short; `make prove` runs all of it."""

from __future__ import annotations

import pytest

from tests.sim.explore import Explorer
from tests.sim.jobs import SHORT_SEARCHES
from tests.sim.mutants import MUTANTS
from tests.sim.parts import Parts
from tests.sim.schedule import Case, Dice, breaks, find, shrink
from tests.sim.shapes import SHAPES

RANDOM_CASES = 2000
BY_NAME = {mutant.off: mutant for mutant in MUTANTS}


@pytest.mark.parametrize(("shape", "faults"), SHORT_SEARCHES)
def test_every_schedule_of_a_small_tree(shape: str, faults: str) -> None:
    verbs = faults.split()
    found = Explorer(SHAPES[shape], Parts(), {verb: verbs.count(verb) for verb in verbs}).run()
    assert found.broken is None, f"{found.broken[0]}\n{found.broken[1]}"
    assert found.schedules >= found.states > 3


def test_random_schedules(seed: int) -> None:
    finding = find(range(seed, seed + RANDOM_CASES), Parts())
    assert finding is None, str(finding)


def test_random_schedules_find_out_too_and_show_the_shortest() -> None:
    parts = BY_NAME["link dedupe"].parts
    finding = find(range(2000), parts)
    assert finding is not None
    assert len(finding.smallest.schedule) <= len(finding.case.schedule)
    invariant = finding.error.invariant
    for index in range(len(finding.smallest.schedule)):
        rest = finding.smallest.schedule[:index] + finding.smallest.schedule[index + 1 :]
        error = breaks(Case(finding.case.seed, finding.case.shape, rest), parts)
        assert error is None or error.invariant != invariant
    again = find([finding.case.seed], parts)
    assert again is not None
    assert str(again) == str(finding)
    assert f"seed {finding.case.seed}" in str(finding)


def test_a_seed_gives_the_same_case_whatever_was_drawn_before(seed: int) -> None:
    one, other = Dice(), Dice()
    for earlier in range(5):
        one.case(earlier)
    assert one.case(seed) == other.case(seed)


def test_a_schedule_that_breaks_at_once_is_shrunk_to_nothing() -> None:
    mutant = BY_NAME["failures told"]
    case = Case(0, SHAPES[mutant.shape], (("emit", None), ("send", 0), ("look", 1)))
    assert shrink(case, mutant.parts, mutant.breaks).schedule == ()


def test_deaths_that_one_look_finds_are_all_known_before_any_tree_fails() -> None:
    """Two workers die, the spout's is replaced; the acker's worker sees all of it at once, with the new spout's INIT.
    One in a million random schedules is like this."""
    again = (("kill", 1), ("bury", 1), ("restart", 1))
    schedule = (
        *again, ("kill", 0), *again, ("bury", 0), ("emit", None), ("send", 1), ("deliver", (1, 2)),
    )
    error = breaks(Case(0, SHAPES["two ackers"], schedule), Parts())
    assert error is None, str(error)
