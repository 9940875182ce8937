"""Fault plans: what files and the command line say, and every fault with a mistake named."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.fault_plan import FaultPlan, read_plan
from tests.unit.test_fault_resolution import VIEW

GOOD = """\
# what a plan may hold
seed: 7
for: 60s
faults:
  - kill worker count[0] at 3s
  - "drop 5% of data for 10s"
  - stop count every 10s
"""
FAULTS = (
    Fault("kill", ("worker count[0]",), 3.0),
    Fault("drop", for_secs=10.0, probability=0.05, params={"frames": "data"}),
    Fault("stop", ("count",), every_secs=10.0),
)


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_what_a_plan_may_hold(tmp_path: Path) -> None:
    path = written(tmp_path, "plan.yaml", GOOD)
    assert read_plan((), [path], VIEW, None) == FaultPlan(FAULTS, 7, 60.0)
    other = written(tmp_path, "other.yaml", "for: 5\nfaults: [kill split]")
    joined = (*FAULTS, Fault("kill", ("split",)), Fault("kill", ("lines",)))
    assert read_plan(["kill lines"], [path, other], VIEW, 30.0) == FaultPlan(joined, 7, 5.0)
    assert read_plan(["kill lines every 1s"], [], None, 30.0).for_secs == 30.0


def test_every_fault_with_a_mistake_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "plan.yaml", "faults:\n  - kil count\n  - kill count\n  - kill cuont\n  - kill at\n")
    with pytest.raises(UsageError) as caught:
        read_plan(["stop cuont"], [path], VIEW, None)
    said = str(caught.value).split("; ")
    numbered = (f"{path}: fault 1: fault 'kil'", f"{path}: fault 3: there is no", f"{path}: fault 4: ")
    for start in (*numbered, "--fault: there is no"):
        assert any(part.startswith(start) for part in said), (start, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a plan has a list of faults"), ("faults: kill count", "a plan has a list of faults"),
        ("sead: 7\nfaults: []", "sead"), ("faults: [{fault: kill}]", "a plan has a list of faults"),
        ("faults: [", "a plan has a list of faults"), ("for: soon\nfaults: []", "duration 'soon' is not understood"),
        ("a: &a [*a]", "a plan has a list of faults"), ("\x00", "a plan has a list of faults"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, "plan.yaml", text)
    with pytest.raises(UsageError) as caught:
        read_plan((), [path], VIEW, None)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_has_one_seed_and_files_that_are_there(tmp_path: Path) -> None:
    paths = [written(tmp_path, name, "seed: 1\nfaults: [kill count]") for name in ("a.yaml", "b.yaml")]
    with pytest.raises(UsageError, match="have a seed each; a run has one"):
        read_plan((), paths, VIEW, None)
    with pytest.raises(UsageError, match=r"cannot read plan .*: No such file or directory"):
        read_plan((), [str(tmp_path / "none.yaml")], VIEW, None)
