"""A file that is written beside its place: a failed write leaves nothing there."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.board import Board
from squall.ipc.rundir import RunDir
from squall.scheduler.breaking.faults_file import write_faults
from squall.scheduler.faults.in_force import FaultInForce
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
