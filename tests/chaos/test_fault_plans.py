"""Faults that `squall run` is told to inject: the commands of docs/faults.md, what they do, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from pathlib import Path

import pytest

from tests.process.cli import ROOT, squall
from tests.process.standing_tools import ENDLESS, in_process

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


def test_end_of_a_run_ends_its_faults_and_names_those_that_never_began() -> None:
    lines = (
        "stop nimbus at 100ms for 30m", "slow nothing for 1ms at 50ms every 30m, 2 times", "kill nothing at 100ms",
    )  # fmt: skip
    faults = [word for line in lines for word in ("--fault", line)]
    done = squall("run", ENDLESS, "--workers", "2", "--json", "--for", "5s", *faults)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["duration_secs"] < 30
    assert [line for line in done.stderr.splitlines() if line.startswith("fault: ") and " s: " not in line] == [
        "fault: began 1 of 2 times: slow nothing at 0.05s for 0.001s every 1800s 2 times: the run was over before",
        "fault: did not begin: kill nothing at 0.1s: the run was over before",
    ]


def test_every_mistake_is_named_and_nothing_is_started(plan: Path) -> None:
    plan.write_text("faults:\n  - kil count\n  - kill cuont\n  - stop count for 3weeks\n")
    with tempfile.TemporaryDirectory() as there:
        done = in_process(
            "run", "examples/word_count.py", "--faults", plan, "--fault", "kill node-2:6700", "--fault", "kill node-9",
            "--dir", f"{there}/run", "--", "README.md",
        )  # fmt: skip
        assert not Path(there, "run").exists()
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    said = done.stderr.removeprefix("squall: ").rstrip().split("; ")
    named = ["'node-2:6700'", "'node-9'", "'kil' is unknown", "'cuont'", "'stop count for 3weeks': duration '3weeks'"]
    assert all(any(word in line for line in said) for word in named), said
