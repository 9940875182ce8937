"""Commands that start a cluster in one directory at the same instant: one does, the others say so and take nothing
down. Those that stop it all do."""

from __future__ import annotations

import tempfile
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import processes_of
from tests.process.cli import start
from tests.process.standing_tools import directory
from tests.process.waiting import wait_for

UNENDING = """
from squall import TopologyBuilder
from tests.process import parts

def topology(args):
    builder = TopologyBuilder()
    builder.set_spout("numbers", parts.Unending(args[0]))
    builder.set_bolt("pass", parts.Pass()).shuffle_grouping("numbers")
    return builder.build()
"""


def at_once(*lines: list[str], enough: Path | None = None) -> list[tuple[int, str]]:
    """Exit code and stderr of each, the one that succeeded first. The file `enough` is made when one has ended."""
    processes = [start(*line) for line in lines]
    if enough is not None:
        wait_for("the end of one", lambda: any(process.poll() is not None for process in processes))
        enough.touch()
    ends = []
    for process in processes:
        _, err = process.communicate(timeout=100)
        ends.append((process.returncode, err))
    return sorted(ends)


def test_three_ups_and_four_downs() -> None:
    with directory() as cluster:
        line = ["up", "--detach", "--slots", "1", "--dir", str(cluster.path)]
        (won, _), *others = at_once(line, line, line)
        assert won == 0
        for code, err in others:
            assert code == 2
            assert err.count("\n") == 1
            assert "a cluster is being started in" in err or "a cluster runs in" in err
        assert len(cluster.json("status")["nodes"]) == 1
        line = ["down", "--dir", str(cluster.path)]
        assert at_once(*[line] * 4) == [(0, "")] * 4
        assert processes_of(cluster.run_dir) == []


def test_two_runs() -> None:
    with tempfile.TemporaryDirectory() as parent:
        path, enough = Path(parent) / "run", Path(parent) / "enough"
        file = Path(parent) / "unending.py"
        file.write_text(UNENDING)
        # Whoever is first does not end before the other.
        line = ["run", f"{file}:topology", "--quiet", "--dir", str(path), "--", parent]
        (won, said), (lost, err) = at_once(line, line, enough=enough)
        assert (won, lost) == (0, 2), said + err
        assert "a cluster is being started in" in err or "a cluster runs in" in err
        assert err.count("\n") == 1
        assert processes_of(RunDir(path)) == []
        assert [*path.rglob("*.sock"), *(path / "s").iterdir()] == []
