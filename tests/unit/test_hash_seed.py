"""The seed by which a cluster's processes hash text: drawn once, kept, and never replaced in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.hash_seed import FILE_NAME, VARIABLE, of_process
from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import daemon_environment


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.delenv(VARIABLE, raising=False)
    return RunDir.create(tmp_path / "c")


def test_a_cluster_keeps_its_seed(run_dir: RunDir) -> None:
    seed = run_dir.hash_seed()
    assert 0 < seed < 1 << 32
    (run_dir.path / "key").unlink()
    assert RunDir.create(run_dir.path).hash_seed() == seed
    assert daemon_environment(run_dir)[VARIABLE] == str(seed)


@pytest.mark.parametrize("given", ["0", "77", "4294967295"])
def test_a_user_may_choose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(VARIABLE, given)
    run_dir = RunDir.create(tmp_path / "c")
    assert run_dir.hash_seed() == int(given)
    # Later processes of the cluster follow the file.
    monkeypatch.setenv(VARIABLE, "5")
    assert daemon_environment(run_dir)[VARIABLE] == given


@pytest.mark.parametrize("given", ["", "random", "-1", "4294967296", "\u0663", "1.0"])
def test_what_is_no_seed_is_not_taken(given: str) -> None:
    assert of_process({VARIABLE: given}) is None


@pytest.mark.parametrize("store", ["nimbus.db", "zookeeper"])
def test_one_that_is_lost_is_drawn_again_only_without_a_store(run_dir: RunDir, store: str) -> None:
    (run_dir.path / FILE_NAME).unlink()
    with pytest.raises(ClusterError, match=r"text\.seed is lost"):
        run_dir.hash_seed()
    RunDir.create(run_dir.path).hash_seed()
    (run_dir.path / FILE_NAME).unlink()
    (run_dir.path / store).touch()
    with pytest.raises(UsageError, match=r"text\.seed is lost: .* put back a copy"):
        RunDir.create(run_dir.path)
