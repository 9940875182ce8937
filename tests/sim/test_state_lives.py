"""State, windows and sinks under deaths and failed commits; and what notices when a part of it is switched off. `make
prove` runs more of it."""

from __future__ import annotations

import pytest

from tests.sim.state_lives import STATE_MUTANTS, StateMutant, run_life

LIVES, MUTANT_SEEDS = 40, 1_000


def test_each_record_counts_once_in_every_life(seed: int) -> None:
    for number in range(LIVES):
        run_life(seed + number)


@pytest.mark.parametrize("mutant", STATE_MUTANTS, ids=[mutant.off for mutant in STATE_MUTANTS])
def test_a_part_that_is_switched_off_is_noticed(mutant: StateMutant) -> None:
    assert mutant.first_broken(MUTANT_SEEDS) is not None
