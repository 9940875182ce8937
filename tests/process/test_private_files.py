"""Whatever the umask of the caller is: nothing that a cluster makes can be entered by others."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from squall import Bolt, BoltCollector, Config, FailedTuple, LocalCluster, TopologyBuilder, TopologyContext, Tuple
from squall.scheduler.common.role import processes_of
from squall.testing import FixedSpout
from tests.process.standing_tools import ENDLESS, directory
from tests.process.waiting import wait_for


class Refuses(Bolt):
    """Leaves what a worker can leave: failures, dead letters, a metric, a line of its log."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.seen = context.counter("seen")

    def execute(self, tup: Tuple) -> None:
        self.seen.add(1)
        print("refused")
        raise FailedTuple("no")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(path: Path) -> list[str]:
    """What in a tree somebody else has a right to, but for links."""
    found = []
    for entry in [path, *path.rglob("*")]:
        mode = entry.lstat().st_mode
        if mode & 0o077 and not stat.S_ISLNK(mode):
            found.append(f"{stat.filemode(mode)} {entry.relative_to(path)}")
    return found


def umask_of(pid: int) -> str:
    return re.findall(r"Umask:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]


def test_a_cluster_of_a_program(no_umask: None, tmp_path: Path) -> None:
    run_dir = tmp_path / "made" / "run"
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedSpout(("n",), [[1], [2]]))
    builder.set_bolt("refuses", Refuses()).shuffle_grouping("spout")
    with LocalCluster(nodes=1, slots_per_node=2, run_dir=run_dir) as cluster:
        job = cluster.submit("open", builder.build(), Config(workers=2, max_attempts=1))
        job.wait_until_drained(timeout=90)
        assert open_to_others(run_dir.parent) == []
        assert len([entry for entry in run_dir.rglob("*") if entry.is_socket()]) >= 4
    assert open_to_others(run_dir.parent) == []
    assert list(run_dir.glob("state/*/dead-letters*")) != []
    # It is the program's own to set.
    assert os.umask(0) == 0


def test_a_standing_cluster(no_umask: None) -> None:
    with directory() as cluster:
        cluster.up(slots=1)
        assert cluster.run("submit", ENDLESS, "--name", "endless").returncode == 0
        wait_for("a log of a worker", lambda: list(cluster.run_dir.logs.glob("*/*.log")))
        assert open_to_others(cluster.path) == []
        # Files that nobody made yet would be private too.
        umasks = {" ".join(process.cmdline()): umask_of(process.pid) for process in processes_of(cluster.run_dir)}
        assert len(umasks) >= 4
        assert set(umasks.values()) == {"0077"}, umasks
