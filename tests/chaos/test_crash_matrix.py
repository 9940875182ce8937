"""The crash matrix of user code: a cell of each way, drawn from the seed; `make chaos` runs them all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall import LocalCluster
from tests.chaos.crash_matrix import Cell, cells, run_cells

SIDE_BY_SIDE = 6
TABLE = cells()
SLOW = [cell for cell in TABLE if cell.waits_to_be_ready]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(slots_per_node=2 * SIDE_BY_SIDE) as made:
        yield made


def in_groups(table: list[Cell]) -> list[list[Cell]]:
    return [table[first : first + SIDE_BY_SIDE] for first in range(0, len(table), SIDE_BY_SIDE)]


def test_some_cells(cluster: LocalCluster, tmp_path: Path, seed: int) -> None:
    """One of each way."""
    chance, quick = random.Random(seed), [cell for cell in TABLE if cell not in SLOW]
    drawn = [chance.choice([cell for cell in quick if cell.way == way]) for way in {cell.way: "" for cell in quick}]
    for number, group in enumerate(in_groups(drawn)):
        (tmp_path / str(number)).mkdir()
        run_cells(cluster, group, tmp_path / str(number))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "group", in_groups(SLOW + [cell for cell in TABLE if cell not in SLOW]), ids=lambda group: str(group[0])
)
def test_all_cells(cluster: LocalCluster, tmp_path: Path, group: list[Cell]) -> None:
    run_cells(cluster, group, tmp_path)
