"""Processes of a cluster that die at their effects: some of some operations, drawn anew each time; `make chaos` draws
more of all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.effect_sweep import OPERATIONS, Row, Sweep, effects_of, run_row
from tests.process.standing_tools import directory

QUICK = [name for name in OPERATIONS if name != "down"]
ROWS = 8
"""Rows that share a cluster: more would make its keeper wait between two starts."""
PAIRED_CLUSTERS = 8


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    with directory() as cluster:
        made = Sweep(cluster, tmp_path)
        try:
            made.begin()
            yield made
        finally:
            made.book.close()


def draw(sweep: Sweep, rng: random.Random, operation: str, rows: int) -> Iterator[Row]:
    """Of all effects that the operation has."""
    counted = effects_of(sweep, operation)
    for _ in range(rows):
        kind = rng.choice(list(counted))
        row = Row(operation, kind, rng.randint(1, max(1, counted[kind])))
        print(f"{row} of {counted[kind]}", flush=True)
        yield row


def test_some_effects(sweep: Sweep, seed: int) -> None:
    rng = random.Random(seed)
    for operation in rng.sample(QUICK, 2):
        for row in draw(sweep, rng, operation, 2):
            run_row(sweep, row)
    assert sweep.deaths
    sweep.finish(sweep.end())


@pytest.mark.nightly
@pytest.mark.parametrize("operation", OPERATIONS)
def test_many_effects(sweep: Sweep, seed: int, operation: str) -> None:
    for row in draw(sweep, random.Random(f"{seed} {operation}"), operation, ROWS):
        run_row(sweep, row)
    assert sweep.deaths
    sweep.finish(sweep.end())


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(PAIRED_CLUSTERS))
def test_two_die(sweep: Sweep, seed: int, number: int) -> None:
    rng = random.Random(f"{seed} {number}")
    for row in draw(sweep, rng, rng.choice(QUICK), ROWS // 2):
        other = next(draw(sweep, rng, rng.choice(QUICK), 1))
        run_row(sweep, row, (other.kind, other.nth))
    assert sweep.deaths
    sweep.finish(sweep.end())
