"""Files for their owner alone: a failed write leaves nothing, and a removed directory does not come back."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.board import Board
from squall.ipc.private import make_levels
from squall.ipc.rundir import RunDir
from squall.scheduler.faults.in_force import FaultInForce, write_faults
from squall.scheduler.nimbus.store import Store


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may be longer than eight bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "write",
    [
        lambda run_dir: Board.create(str(run_dir.board("one-1")), 1, 1),
        lambda run_dir: write_faults(run_dir, [FaultInForce(1, "stop", ["a"], 0.0, 1.0)]),
        lambda run_dir: Store(run_dir.nimbus_db),
    ],
    ids=["board", "faults", "store"],
)
def test_a_failed_write_leaves_nothing(run_dir: RunDir, write: Callable[[RunDir], object]) -> None:
    def files() -> list[Path]:
        return sorted(run_dir.path.rglob("*"))

    before = files()
    with no_room(), pytest.raises(ClusterError):
        write(run_dir)
    assert files() == before


def test_what_is_missing_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "failures" / "t-1"
    for _ in range(2):
        make_levels(path, 2)
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("levels", [1, 2])
def test_a_removed_run_directory_does_not_come_back(tmp_path: Path, levels: int) -> None:
    gone = tmp_path / "cluster"
    with pytest.raises(FileNotFoundError):
        make_levels(gone / "failures" / "t-1", levels)
    assert not gone.exists()
