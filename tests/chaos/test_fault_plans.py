"""Faults that `squall run` is told to inject: the commands of docs/faults.md, what they do, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.process.cli import ROOT, squall

PAGE = (ROOT / "docs" / "faults.md").read_text().partition("## Fault plans\n")[2].partition("\n## ")[0]
COMMANDS = re.search(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PLAN = re.search(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
assert COMMANDS is not None
assert PLAN is not None
RUNS = [line for line in COMMANDS[1].splitlines() if line.startswith("squall run ")]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN[1])
    return path


def test_every_command_of_the_page(plan: Path) -> None:
    assert len(RUNS) == len(COMMANDS[1].splitlines()) - 1 == 2
    for line in RUNS:
        _, *arguments = shlex.split(line.replace("plan.yaml", str(plan)))
        done = squall(arguments[0], "--json", *arguments[1:])
        assert done.returncode == 0, (line, done.stderr)
        report = json.loads(done.stdout)
        assert report["pending"] == 0
        assert report["drained"]
        begun = [said.partition(" s: ")[2] for said in done.stderr.splitlines() if said.startswith("fault: ")]
        assert [said for said in begun if said.startswith("kill worker count[0]")], done.stderr
        assert [restart["reason"] for restart in report["restarts"]] == ["killed by SIGKILL"], done.stderr


def test_end_of_a_run_ends_its_faults_and_names_those_that_never_began(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    lines = (
        "stop nimbus at 100ms for 30m", "slow takes for 1ms at 50ms every 30m, 2 times", "kill takes at 100ms",
    )  # fmt: skip
    faults = [word for line in lines for word in ("--fault", line)]
    done = squall("run", path, "--workers", "2", "--json", "--for", "5s", *faults)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["duration_secs"] < 30
    said = [line for line in done.stderr.splitlines() if " s: " not in line]
    assert said == [
        "fault: began 1 of 2 times: slow takes at 0.05s for 0.001s every 1800s 2 times: the run was over before",
        "fault: did not begin: kill takes at 0.1s: the run was over before",
    ]


ENDLESS = """
from squall import Bolt, Spout, TopologyBuilder

class Asks(Spout):
    outputs = ("n",)
    def open(self, conf, context, collector):
        self.collector, self.n = collector, 0
    def next_tuple(self):
        self.n += 1
        self.collector.emit((self.n,), message_id=self.n)

class Takes(Bolt):
    def prepare(self, conf, context, collector):
        self.collector = collector
    def execute(self, tup):
        self.collector.ack(tup)

builder = TopologyBuilder()
builder.set_spout("asks", Asks())
builder.set_bolt("takes", Takes()).shuffle_grouping("asks")
topology = builder.build()
"""


def test_every_mistake_is_named_and_nothing_is_started(plan: Path) -> None:
    plan.write_text("faults:\n  - kil count\n  - kill cuont\n  - stop count for 3weeks\n")
    with tempfile.TemporaryDirectory() as there:
        done = squall(
            "run", "examples/word_count.py", "--faults", plan, "--fault", "kill node-2:6700", "--fault", "kill node-9",
            "--dir", f"{there}/run", "--", "README.md",
        )  # fmt: skip
        assert not Path(there, "run").exists()
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    said = done.stderr.removeprefix("squall: ").rstrip().split("; ")
    expected = [
        "--fault: there is no worker, node or component 'node-2:6700'",
        "--fault: there is no worker, node or component 'node-9'",
        f"{plan}: fault 1: fault 'kil' is unknown",
        f"{plan}: fault 2: there is no worker, node or component 'cuont'",
        f"{plan}: fault 3: 'stop count for 3weeks' is not understood",
    ]
    assert all(any(line.startswith(one) for line in said) for one in expected), said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--faults", "no-such.yaml"], "squall: cannot read plan no-such.yaml: No such file or directory"),
        (["--local", "--fault", "kill count"], "squall: --fault is for a cluster, not for --local"),
    ],
)
def test_wrong_use(arguments: list[str], message: str) -> None:
    done = squall("run", "examples/names.py", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1
