"""A standing cluster from a program, and topologies that are followed, replaced, and leave when they have finished."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import Cluster, Config, UsageError, bolt, spout
from squall.engine.api.topology import Topology
from tests.process.cli import command, environment
from tests.process.standing_tools import Standing
from tests.process.waiting import wait_for
from tests.unit.wired import wired

FILE = """
    import time
    from squall import FailedTuple, TopologyBuilder, bolt, spout

    @spout("n")
    def numbers(start):
        yield from range(start, LIMIT)

    @spout("n")
    def endless(start):
        while True:
            time.sleep(0.001)
            yield start
            start += 1

    @bolt
    def write(tup, context):
        with open(OUT, "a") as file:
            print(tup["n"], file=file)
        if FAILS:
            raise FailedTuple

    def topology():
        builder = TopologyBuilder()
        builder.set_spout("numbers", numbers if LIMIT else endless)
        builder.set_bolt("write", write).shuffle_grouping("numbers")
        return builder.build()
"""


@pytest.fixture
def cluster(standing: Standing) -> Iterator[Cluster]:
    with Cluster.connect(standing.path) as connected:
        yield connected


class File:
    """A topology file that writes down what it processed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.out = folder / "app.py", folder / "out"

    def write(self, limit: int, fails: bool = False) -> Path:
        text = textwrap.dedent(FILE).replace("LIMIT", str(limit)).replace("OUT", repr(str(self.out)))
        self.path.write_text(text.replace("FAILS", str(fails)))
        return self.path

    @property
    def lines(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def counting(count: int) -> Topology:
    @spout("n")
    def numbers() -> range:
        return range(count)

    @bolt
    def sink(tup: Any) -> None: ...

    return wired(numbers=(numbers, 1), sink=(sink, 1, "shuffle numbers")).build()


def test_a_program_submits_finds_and_breaks(cluster: Cluster) -> None:
    job = cluster.submit("counted", counting(50), Config(workers=1))
    assert job.wait_until_drained(120).acked == 50
    assert job.status() == "FINISHED"
    again = cluster.job("counted")
    assert again.stats().emitted == 50
    assert cluster.names() == ["counted"]
    [begun] = cluster.inject("slow", "sink", for_secs=60)
    assert begun.kind == "slow"
    assert [fault.kind for fault in cluster.heal()] == ["slow"]
    assert cluster.new_log_lines() == []
    with pytest.raises(UsageError, match="there is no topology named 'other'"):
        cluster.job("other")
    with pytest.raises(UsageError, match="submit needs the Topology"):
        cluster.submit("x", "topology")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"config is \{'workers': 2\}; allowed: a Config"):
        cluster.submit("x", counting(1), {"workers": 2})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the name of a topology is 5; allowed: a text"):
        cluster.submit(5, counting(1))  # type: ignore[arg-type]


def test_a_fault_right_after_the_submission_waits_for_the_workers(cluster: Cluster) -> None:
    job = cluster.submit("hit", counting(50), Config(workers=2))
    [killed] = cluster.inject("kill", "hit/numbers", "hit/sink")
    assert len(killed.victims) == len(job.topology_state().workers)
    with pytest.raises(UsageError, match="there is no worker, node or component 'node-9:6700'"):
        cluster.inject("kill", "node-9:6700")
    assert job.wait_until_drained(120).acked == 50
    job.kill()


def test_one_that_goes_on_from_earlier_state_says_so(cluster: Cluster) -> None:
    def run(**options: bool) -> tuple[bool | None, int]:
        job = cluster.submit("twice", counting(50), **options)
        acked = job.wait_until_drained(120).acked
        job.kill(0.0)
        return job.takes_up_state, acked

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run() == (False, 50)
        with pytest.raises(UserWarning, match=r"^twice takes up the state that an earlier twice left in /"):
            run()
        assert cluster.names() == []
        assert run(fresh=False) == (True, 0)
        assert run(replace=True) == (True, 0)
        assert run(fresh=True) == (False, 50)


def test_a_topology_outlives_its_program_and_takes_its_modules_along(
    standing: Standing, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("def twice(n):\n    return 2 * n\n")
    (tmp_path / "program.py").write_text(textwrap.dedent(f"""
        import beside
        from squall import Cluster, TopologyBuilder, bolt, spout

        @spout("n")
        def numbers():
            return range(3)

        @bolt
        def write(tup):
            with open({str(tmp_path / "out")!r}, "a") as file:
                print(beside.twice(tup["n"]), file=file)

        builder = TopologyBuilder()
        builder.set_spout("numbers", numbers)
        builder.set_bolt("write", write).shuffle_grouping("numbers")
        with Cluster.connect() as cluster:
            cluster.submit("left", builder.build(), active=False)
    """))
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], env=environment(SQUALL_DIR=str(standing.path)), capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "beside.py").unlink()
    job = cluster.job("left")
    job.activate()
    job.wait_until_drained(120)
    assert (tmp_path / "out").read_text().split() == ["0", "2", "4"]


def test_submit_until_drained_is_as_run(standing: Standing, cluster: Cluster, file: File) -> None:
    report = standing.json("submit", file.write(30), "--name", "x", "--until-drained", "--remove-when-drained")
    assert (report["acked"], report["drained"]) == (30, True)
    assert cluster.names() == []
    failing = ("submit", file.write(3, fails=True), "--name", "y", "--set", "max_attempts=1", "--until-drained")
    done = standing.run(*failing)
    assert done.returncode == 3, done.stderr
    assert "3 dead letters" in done.stdout
    assert cluster.names() == ["y"]


def test_an_interrupted_follower_leaves_the_topology(standing: Standing, cluster: Cluster, file: File) -> None:
    arguments = command("submit", file.write(0), "--name", "followed", "--until-drained", "--dir", standing.path)
    with subprocess.Popen(arguments, env=environment(), stderr=subprocess.PIPE, text=True) as follower:
        wait_for("its work", lambda: len(file.lines) > 5)
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=120)
    assert follower.returncode == 130
    assert said.splitlines()[0].startswith("followed runs on 1 worker: node-1:")
    assert said.splitlines()[-1] == "followed runs on; squall status followed shows it"
    assert cluster.job("followed").status() == "ACTIVE"


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch, standing: Standing, tmp_path: Path) -> None:
    for path, refused in ((tmp_path, pytest.raises(UsageError, match="there is no cluster at")),
                          (standing.path, contextlib.nullcontext())):  # fmt: skip
        monkeypatch.setenv("SQUALL_DIR", str(path))
        with refused, contextlib.closing(Cluster.connect()) as connected:
            assert connected.names() == []
