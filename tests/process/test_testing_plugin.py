"""The pytest plugin as users get it: test runs of their own, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.process.cli import ROOT, environment, plugin_arguments

TOPOLOGY = '''
import subprocess
import pytest
from squall import BasicBolt, Config, TopologyBuilder
from squall.testing import FeederSpout, wait_for


class Square:
    """A value of a class that no worker can import."""

    def __init__(self, side):
        self.side = side


class Squares(BasicBolt):
    outputs = ("square",)

    def execute(self, tup, collector):
        collector.emit((Square(tup[0]),))


class Last(BasicBolt):
    def execute(self, tup, collector):
        assert tup[0].side == 3


class Leaves(Last):
    def prepare(self, conf, context):
        subprocess.Popen(["sleep", "600"], start_new_session=True)


def run(cluster, tmp_path, last, workers=2):
    feeder = FeederSpout(("side",), tmp_path)
    builder = TopologyBuilder()
    builder.set_spout("sides", feeder)
    builder.set_bolt("squares", Squares()).shuffle_grouping("sides")
    builder.set_bolt("last", last).shuffle_grouping("squares")
    job = cluster.submit("squares", builder.build(), Config(workers=workers))
    feeder.feed((3,))
    feeder.finish()
    job.wait_until_drained(timeout=90)
    assert feeder.acked == [1]
    return job
'''


def run_pytest(
    directory: Path, text: str, *arguments: str, plugin: bool = True, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    (directory / "test_mine.py").write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    named = plugin_arguments() if plugin else []
    paths = f"{ROOT}:{path}" if path is not None else str(ROOT)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, *arguments], cwd=directory,
        env={**environment(), "PYTHONPATH": paths}, capture_output=True, text=True, timeout=100,
    )


def test_what_a_test_leaves_behind_fails_it_and_a_marker_that_says_nonsense(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TOPOLOGY + '''

@pytest.mark.squall_cluster(nodes=2, slots_per_node=1)
def test_two_nodes(squall_cluster, tmp_path):
    run(squall_cluster, tmp_path, Last())
    nodes = {worker.node for worker in squall_cluster.client.get_topology("squares").assignment.workers}
    assert nodes == {"node-1", "node-2"}


def test_leaves(squall_cluster, tmp_path):
    run(squall_cluster, tmp_path, Leaves(), workers=1)
    nodes = {worker.node for worker in squall_cluster.client.get_topology("squares").assignment.workers}
    assert nodes == {"node-1"}


def test_keeps_a_file_open(squall_cluster, tmp_path):
    global file
    file = open(squall_cluster.run_dir.daemon_log("nimbus"))


@pytest.mark.squall_cluster(supervisors=2)
def test_nonsense(squall_cluster):
    raise AssertionError("not reached")
''', "--import-mode=importlib")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 passed, 3 errors" in done.stdout
    assert "squall_cluster: this test left behind" in done.stdout
    assert ": sleep 600" in done.stdout
    assert "descriptor" in done.stdout
    assert "nimbus.log" in done.stdout
    assert "@pytest.mark.squall_cluster: " in done.stdout
    assert "unexpected keyword argument 'supervisors'" in done.stdout


def test_the_entry_point_registers_it_and_who_does_not_use_it_pays_little(tmp_path: Path) -> None:
    """An installation as far as entry points are concerned: its metadata on the path, made from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "squall-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: squall\nVersion: 0\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["pytest11"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]) + "\n")
    done = run_pytest(tmp_path, '''
import sys
import pytest

def test_nothing_is_imported():
    assert "squall.testing.plugin" in sys.modules
    assert not {"zmq", "msgspec", "psutil", "cloudpickle"} & sys.modules.keys()

@pytest.mark.squall_cluster(nodes=1)
def test_mine(request):
    assert request.config.pluginmanager.get_plugin("squall").__name__ == "squall.testing.plugin"
''', plugin=False, path=tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
