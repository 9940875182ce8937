"""A directory is made with a bounded number of those above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.ipc.private import make_levels


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
