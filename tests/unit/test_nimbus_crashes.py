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

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))


@each_row
def test_all_of_it_or_nothing_at_some_effects(row: Row, run_dir: RunDir, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sweep = Sweep(row, run_dir, tmp_path)
    check(sweep, rng.sample(range(1, len(sweep.effects) + 1), DRAWN), rng)


@pytest.mark.nightly
@each_row
def test_all_of_it_or_nothing_at_all_effects(row: Row, run_dir: RunDir, tmp_path: Path, seed: int) -> None:
    sweep = Sweep(row, run_dir, tmp_path)
    check(sweep, list(range(1, len(sweep.effects) + 1)), random.Random(seed))


def check(sweep: Sweep, crashes: list[int], rng: random.Random) -> None:
    """The next Nimbus dies, too, half of the times."""
    for nth in crashes:
        again = rng.choice((0, rng.randint(1, len(sweep.effects))))
        print(f"{sweep.row.name}: {nth} of {len(sweep.effects)}, {sweep.effects[nth - 1]}, again at {again}")
        sweep.check(nth, again)
