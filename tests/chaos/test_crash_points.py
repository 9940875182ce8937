"""Daemons that die at their steps: some rows of the sweep, drawn anew each time; `make chaos` runs them all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crash_points import TABLE, Row, Scene, run_row
from tests.process.standing_tools import directory

DRAWN = 4
TOGETHER = 10
"""Rows that share a cluster: more would make its keeper wait between two starts."""
PAIRED_CLUSTERS = 8
QUICK = [row for row in TABLE if row.operation != "down"]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with directory() as cluster:
        made = Scene(cluster, tmp_path)
        made.begin()
        yield made


def run_rows(scene: Scene, rows: list[Row]) -> None:
    for row in rows:
        print(row, flush=True)
        run_row(scene, row)
    scene.finish()


def test_some_rows(scene: Scene, seed: int) -> None:
    run_rows(scene, random.Random(seed).sample(QUICK, DRAWN))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(TABLE), TOGETHER))
def test_all_rows(scene: Scene, first: int) -> None:
    # Mixed, so that not always the same daemon dies; always in the same way, so that every row has its turn.
    mixed = random.Random(0).sample(TABLE, len(TABLE))
    run_rows(scene, mixed[first : first + TOGETHER])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PAIRED_CLUSTERS))
def test_two_die_at_points_drawn_anew(scene: Scene, seed: int, number: int) -> None:
    rng = random.Random(f"{seed}-{number}")
    points = sorted({row.point for row in TABLE})
    hits = 0
    for row in rng.sample(QUICK, TOGETHER // 2):
        also = row.point if rng.random() < 0.3 else rng.choice(points)
        print(row, "and", also, flush=True)
        hits += run_row(scene, row, also)
    scene.finish()
    print(f"{hits} of {TOGETHER // 2} second points were hit")
