"""The writer of each file killed at each effect of it: what is there is whole, and the work can be done again."""

from __future__ import annotations

import contextlib

import pytest

from squall.engine.errors import SquallError
from squall.ipc.rundir import RunDir
from squall.scheduler.records import worker_ledger
from tests.effects import dies_at, effects_of
from tests.unit.file_crashes import HISTORY_BYTES, ROWS, Row
from tests.unit.full_disk import no_room
from tests.unit.run_dirs import files_of


@pytest.fixture(autouse=True)
def short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_ledger, "HISTORY_BYTES", HISTORY_BYTES)


each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)


@each_row
def test_nothing_is_torn_or_lost_wherever_the_writer_dies(row: type[Row], run_dir: RunDir) -> None:
    whole = row(run_dir)
    assert not whole.is_done()
    effects = effects_of(whole.work)
    assert effects
    assert whole.is_done()
    whole.close()
    for nth, effect in enumerate(effects, 1):
        print(f"{row.__name__}: dies at {nth}, {effect}")
        own = RunDir.create()
        torn = row(own)
        try:
            assert dies_at(nth, torn.work)
            if not torn.is_done():
                torn.work()
            assert torn.is_done()
            assert not [name for name in files_of(own.path) if name.endswith(".new")]
        finally:
            torn.close()
            own.remove()


@each_row
def test_a_full_disk_leaves_nothing_beside_a_file(row: type[Row], run_dir: RunDir) -> None:
    full = row(run_dir)
    with no_room(), contextlib.suppress(OSError, SquallError):
        full.work()
    assert not [name for name in files_of(run_dir.path) if name.endswith(".new")]
    full.close()
