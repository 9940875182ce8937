"""Commands that start a cluster in one directory at the same instant: one does, the others say so and take nothing
down. Those that stop it all do."""

from __future__ import annotations

from squall.scheduler.common.role import processes_of
from tests.process.cli import start
from tests.process.standing_tools import Standing


def at_once(*lines: list[str]) -> list[tuple[int, str]]:
    """Exit code and stderr of each, the one that succeeded first."""
    processes = [start(*line) for line in lines]
    ends = [(process.communicate(timeout=100)[1], process.returncode) for process in processes]
    return sorted((code, err) for err, code in ends)


def test_three_ups_and_four_downs(cluster: Standing) -> None:
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
