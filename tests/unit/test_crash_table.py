"""No step is left out of the crash-point sweep: its three tables together come by every one."""

from __future__ import annotations

from pathlib import Path

import pytest

import squall.scheduler.supervisor.history
from squall.ipc.rundir import RunDir
from squall.scheduler.common.fault_points import STEPS
from tests.chaos.crash_points import OPERATIONS, TABLE
from tests.unit import file_crashes, nimbus_crashes
from tests.unit.dying import passes_of
from tests.unit.nimbus_crashes import Sweep


def test_rows_name_what_there_is() -> None:
    assert {row.point for row in TABLE} <= set(STEPS)
    assert {row.operation for row in TABLE} == set(OPERATIONS)
    assert len(set(TABLE)) == len(TABLE)


def test_every_step_is_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squall.scheduler.supervisor.history, "MAX_BYTES", file_crashes.HISTORY_BYTES)
    swept = {row.point for row in TABLE}
    for number, row in enumerate(nimbus_crashes.ROWS):
        run_dir = RunDir.create()
        (tmp_path / str(number)).mkdir()
        swept |= {point for point, _ in Sweep(row, run_dir, tmp_path / str(number), judges=False).crashes}
        run_dir.remove()
    for kind in file_crashes.ROWS:
        run_dir = RunDir.create()
        made = kind(run_dir)
        swept |= {point for point, _ in passes_of(tmp_path / "points", STEPS, made.work)}
        made.close()
        run_dir.remove()
    assert swept == set(STEPS)
