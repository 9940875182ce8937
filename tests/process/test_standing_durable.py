"""A standing cluster whose runtime directory was emptied, as logout and reboot do, goes on from what it has kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from squall.scheduler.common.role import processes_of
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


@pytest.fixture
def parent() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="d-"))
    yield path
    shutil.rmtree(path)


def test_up_goes_on_after_the_runtime_directory_was_emptied(parent: Path) -> None:
    runtime, state = parent / "r", parent / "s"
    runtime.mkdir(mode=0o700)
    where = {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(state), "SQUALL_DIR": ""}
    cluster = Standing(runtime / "squall" / "cluster")
    try:
        cluster.ok("up", "--detach", "--slots", "1", **where)
        cluster.ok("submit", ENDLESS, "--name", "one", **where)
        wait_for("acks", lambda: cluster.described("one")["acked"] > 0)
        cluster.kill_all()
        shutil.rmtree(runtime / "squall")
        assert "one" in cluster.ok("up", "--detach", "--slots", "1", **where)
        wait_for("acks", lambda: cluster.described("one")["acked"] > 0)
        cluster.ok("down", "-w", "0", **where)
    finally:
        for process in processes_of(cluster.run_dir):
            process.kill()
        psutil.wait_procs(processes_of(cluster.run_dir), 10)
