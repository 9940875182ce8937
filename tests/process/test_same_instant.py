"""Commands that start a cluster in one directory at the same instant: one does, the others say so and take nothing
down. Those that stop it all do."""

from __future__ import annotations

import tempfile
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.common.mark import processes_of
from tests.process.cli import start
from tests.process.standing_tools import directory


def at_once(*lines: list[str]) -> list[tuple[int, str]]:
    """Exit code and stderr of each, the one that succeeded first."""
    processes = [start(*line) for line in lines]
    ends = []
    for process in processes:
        _, err = process.communicate(timeout=100)
        ends.append((process.returncode, err))
    return sorted(ends)


def test_two_ups() -> None:
    with directory() as cluster:
        line = ["up", "--detach", "--slots", "1", "--dir", str(cluster.path)]
        (won, _), *others = at_once(line, line, line)
        assert won == 0
        for code, err in others:
            assert code == 2
            assert err.count("\n") == 1
            assert "a cluster is being started in" in err or "a cluster runs in" in err
        assert len(cluster.json("status")["nodes"]) == 1
        assert cluster.json("down")["killed"] == 0


def test_four_downs() -> None:
    with directory() as cluster:
        cluster.up()
        line = ["down", "--dir", str(cluster.path)]
        assert at_once(*[line] * 4) == [(0, "")] * 4
        assert processes_of(cluster.run_dir) == []


def test_two_runs() -> None:
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent) / "run"
        line = ["run", "examples/names.py", "--quiet", "--dir", str(path)]
        (won, said), (lost, err) = at_once(line, line)
        assert (won, lost) == (0, 2), said + err
        assert err.startswith(f"squall: run directory {path} is in use by pid ")
        assert err.count("\n") == 1
        assert processes_of(RunDir(path)) == []
        assert [*path.rglob("*.sock"), *(path / "s").iterdir()] == []
