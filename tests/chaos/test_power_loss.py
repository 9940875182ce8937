"""`durability = "full"`: the power goes again and again, and of what was written only that is left which was synced."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from squall.engine.state.reading import read_component
from squall.scheduler.common.role import processes_of
from tests.chaos import power_lives, power_loss
from tests.chaos.power_loss import Disk
from tests.process.cli import ROOT, environment
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for

SEEDS, MORE_SEEDS = 24, 100
"""Of a kind at night; after the one by which a mutant was noticed, in case that threads take other turns."""
BY_DAY = {f"{kind}:{seed}:1" for kind, seed, *_ in power_lives.MUTANTS.values()} | {"windows:1:1"}
"""The seeds by which mutants are noticed."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return power_loss.library(tmp_path_factory.mktemp("library"))


def wrong(library: Path, directory: Path, *runs: str) -> list[str]:
    """Those whose results are wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.power_lives", str(directory), *runs], cwd=ROOT,
        env=environment(LD_PRELOAD=str(library)), capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return done.stdout.splitlines()


def test_each_record_counts_once(library: Path, tmp_path: Path) -> None:
    assert wrong(library, tmp_path, *sorted(BY_DAY)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("kind", power_lives.KINDS)
def test_each_record_counts_once_at_any_seed(library: Path, kind: str, seed: int, tmp_path: Path) -> None:
    assert wrong(library, tmp_path, f"{kind}:{seed % 10_000}:{SEEDS}") == []


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", power_lives.MUTANTS)
def test_what_is_not_synced_is_noticed(library: Path, mutant: str, tmp_path: Path) -> None:
    kind, seed, *_ = power_lives.MUTANTS[mutant]
    assert wrong(library, tmp_path, f"{kind}:{seed}:{MORE_SEEDS}:{mutant}") == [mutant]


@pytest.fixture
def parent() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="p-"))
    yield path
    shutil.rmtree(path)


def has_acked(cluster: Standing, count: int) -> bool:
    """Return True if it has, or is at its end."""
    seen = cluster.described("one")
    return seen.acked >= count or seen.status == "FINISHED"


def test_a_cluster_goes_on(library: Path, parent: Path) -> None:
    """Its runtime directory is gone, and of all other files there is what was synced."""
    runtime, root = parent / "r", parent / "root"
    runtime.mkdir(mode=0o700)
    root.mkdir()
    disk = Disk(root, parent / "disk", library)
    where = {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(root), "SQUALL_DIR": "", **disk.environment}
    cluster = Standing(runtime / "squall" / "cluster")
    try:
        for is_first in (True, False):
            disk.power_on()
            cluster.ok("up", "--detach", "--slots", "1", **where)
            if is_first:
                done = cluster.apart("submit", power_lives.__file__, "--name", "one", "--", root / "out", **where)
                assert done.returncode == 0, done.stderr
            wait_for("acks", lambda: has_acked(cluster, power_lives.NUMBERS // 4))
            disk.power_off()
            cluster.kill_all()
            shutil.rmtree(runtime / "squall")
            disk.lose()
        disk.power_on()
        cluster.ok("up", "--detach", "--slots", "1", **where)
        wait_for("the end", lambda: has_acked(cluster, power_lives.NUMBERS + 1))
        cluster.ok("down", "-w", "0", **where)
    finally:
        for process in processes_of(cluster.run_dir):
            process.kill()
        psutil.wait_procs(processes_of(cluster.run_dir), 10)
    expected = Counter(map(str, range(power_lives.NUMBERS)))
    assert read_component(root / "squall" / "cluster" / "state" / "one", "count") == expected
    rows = [json.loads(line)["text"] for path in (root / "out").iterdir() for line in path.read_text().splitlines()]
    assert Counter(rows) == expected
