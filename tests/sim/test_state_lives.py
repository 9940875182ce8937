"""State, and windows, under deaths before and after each commit; and what notices when a part of it is switched off."""

from __future__ import annotations

import pytest

from tests.sim.state_lives import MUTANTS, StateMutant, run_life

LIVES, MUTANT_SEEDS = 30, 40


def test_each_record_counts_once_in_every_life(seed: int) -> None:
    for number in range(LIVES):
        run_life(seed + number)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.off for mutant in MUTANTS])
def test_a_part_that_is_switched_off_is_noticed(mutant: StateMutant) -> None:
    assert mutant.first_broken(MUTANT_SEEDS) is not None
