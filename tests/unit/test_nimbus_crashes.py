"""Nimbus killed at effects of each of its operations: the next one finds all of it or nothing, and can repeat it.

Some effects of each operation, drawn anew each time; `make chaos` kills at all of them.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from squall.ipc.rundir import RunDir
from tests.unit.nimbus_crashes import ROWS, Row, Sweep

DRAWN = 5


@pytest.mark.parametrize("drawn", [DRAWN, pytest.param(None, marks=pytest.mark.nightly)], ids=["some", "all"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_all_of_it_or_nothing(row: Row, drawn: int | None, run_dir: RunDir, tmp_path: Path, seed: int) -> None:
    """The next Nimbus dies, too, half of the times."""
    rng, sweep = random.Random(seed), Sweep(row, run_dir, tmp_path)
    effects = len(sweep.effects)
    for nth in rng.sample(range(1, effects + 1), drawn or effects):
        again = rng.choice((0, rng.randint(1, effects)))
        print(f"{row.name}: {nth} of {effects}, {sweep.effects[nth - 1]}, again at {again}")
        sweep.check(nth, again)
