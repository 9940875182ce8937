"""Nimbus killed at steps of each of its operations: the next one finds all of it or nothing, and can repeat it.

Some steps of each operation, drawn anew each time; `make chaos` kills at all of them.
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
def test_all_of_it_or_nothing_at_some_steps(row: Row, run_dir: RunDir, tmp_path: Path, seed: int) -> None:
    sweep = Sweep(row, run_dir, tmp_path)
    assert len(sweep.crashes) >= 3
    for point, nth_pass in random.Random(seed).sample(sweep.crashes, min(DRAWN, len(sweep.crashes))):
        check(sweep, point, nth_pass)


@pytest.mark.slow
@each_row
def test_all_of_it_or_nothing_at_all_steps(row: Row, run_dir: RunDir, tmp_path: Path) -> None:
    sweep = Sweep(row, run_dir, tmp_path)
    for point, nth_pass in sweep.crashes:
        check(sweep, point, nth_pass)


def check(sweep: Sweep, point: str, nth_pass: int) -> None:
    print(f"{sweep.row.name}: {point}, pass {nth_pass}")
    sweep.check(point, nth_pass)
    if point in ("store.created", "store.committed"):
        sweep.check(point, nth_pass, again=True)
