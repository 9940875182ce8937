"""Each part of the product that is switched off is noticed, at a seed that is remembered or, after a change, another;
and the product breaks nothing there."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.sim.control import Control
from tests.sim.explore import Explorer
from tests.sim.jobs import CONTROLS
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.parts import PARTS
from tests.sim.remembered import REMEMBERED
from tests.sim.schedule import breaks
from tests.sim.shapes import SHAPES


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.off for mutant in MUTANTS])
def test_every_schedule_finds_it(mutant: Mutant) -> None:
    broken = Explorer(SHAPES[mutant.shape], mutant.parts, mutant.faults).run().broken
    assert broken is not None, "every invariant holds all the same"
    assert broken[0].invariant == mutant.breaks, f"{broken[0]}\n{broken[1]}"
    assert breaks(broken[1], mutant.parts) is not None
    assert breaks(broken[1], PARTS) is None


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_the_case_of_a_seed_shows_it(control: Control) -> None:
    remembered = REMEMBERED.get(str(control))
    seed = control.first_seed(chain([remembered or 0], range(control.most)))
    assert seed is not None, "every invariant holds all the same"
    if seed != remembered:
        print(f'In tests/sim/remembered.py: "{control}": {seed}')
    control.run(seed, is_off=False)


def test_no_other_is_remembered() -> None:
    assert REMEMBERED.keys() == {str(control) for control in CONTROLS}
