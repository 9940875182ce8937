"""`squall run` launches its cluster's keeper, which imports while the topology is loaded: whoever dies meanwhile."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import processes_of
from tests.process.cli import squall
from tests.process.waiting import wait_for

FINDS_KEEPER = """
import os, signal, time
import psutil
from squall import TopologyBuilder, bolt, spout

[keeper] = psutil.Process().children()
with open(os.environ["NOTE"], "w") as file:
    file.write(keeper.environ()["SQUALL_RUN_DIR"])
{then}

@spout("n")
def numbers():
    return range(10)

builder = TopologyBuilder()
builder.set_spout("numbers", numbers)
builder.set_bolt("show", bolt(print)).shuffle_grouping("numbers")
topology = builder.build()
"""


def run(tmp_path: Path, then: str) -> tuple[subprocess.CompletedProcess[str], RunDir]:
    """`squall run` of a file that does something while it is loaded, and the run directory."""
    file, noted = tmp_path / "finds_keeper.py", tmp_path / "run_dir"
    file.write_text(FINDS_KEEPER.format(then=then))
    done = squall("run", file, NOTE=str(noted))
    return done, RunDir(noted.read_text())


def await_nothing(run_dir: RunDir) -> None:
    wait_for("the end of all", lambda: not processes_of(run_dir) and not run_dir.path.exists())


def test_a_keeper_that_dies_ends_the_run(tmp_path: Path) -> None:
    done, run_dir = run(tmp_path, "keeper.kill()")
    assert done.returncode == 1
    assert done.stderr == "squall: the cluster's keeper exited with code -9\n"
    await_nothing(run_dir)


def test_a_command_that_dies_while_it_loads_leaves_nothing(tmp_path: Path) -> None:
    done, run_dir = run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)")
    assert done.returncode == -signal.SIGKILL
    await_nothing(run_dir)


def test_what_the_file_sets_reaches_the_workers(tmp_path: Path) -> None:
    """As if the daemons had been executed after it was loaded."""
    file = tmp_path / "sets.py"
    then = f"os.environ['SET_BY_FILE'] = 'so'; os.chdir({str(tmp_path)!r})"
    says = "bolt(lambda tup: print(os.environ['SET_BY_FILE'], os.getcwd()))"
    file.write_text(FINDS_KEEPER.format(then=then).replace("bolt(print)", says))
    done = squall("run", file, NOTE=str(tmp_path / "run_dir"))
    assert done.returncode == 0, done.stderr
    assert f"so {tmp_path}" in done.stderr
