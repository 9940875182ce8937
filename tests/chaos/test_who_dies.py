"""Who dies, what happens. `make chaos` runs these rows again and again, from a seed each time."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.chaos.who_dies import FAULTS, lose_launcher, lose_node, run_row, start_cluster
from tests.process.standing_tools import Standing, directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with directory() as made:
        start_cluster(made)
        yield made
        shutil.copytree(made.run_dir.logs, tmp_path_factory.mktemp("cluster") / "logs")


BY_NIGHT = ("executor", "worker", "hung")
"""The crash matrix has these by day, and kills of workers while state is counted."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.nightly) if name in BY_NIGHT else name for name in FAULTS
])
def test_one_dies(cluster: Standing, tmp_path: Path, seed: int, name: str) -> None:
    run_row(cluster, tmp_path, [name], seed)


@pytest.mark.nightly
def test_two_die_at_once(cluster: Standing, tmp_path: Path, seed: int) -> None:
    pair = random.Random(seed).choice(list(combinations(FAULTS, 2)))
    print(f"{pair[0]} and {pair[1]}")
    run_row(cluster, tmp_path, list(pair), seed)


def test_at_last_a_node_dies_for_good(cluster: Standing, tmp_path: Path, seed: int) -> None:
    lose_node(cluster, tmp_path, seed)


def test_the_launcher_of_a_run_dies(tmp_path: Path, seed: int) -> None:
    lose_launcher(tmp_path, random.Random(seed))
