"""Plans of faults, and when each of them begins."""

from __future__ import annotations

import re
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.cluster.fault_plan import AGAIN_SECS, FaultDriver, FaultPlan, Schedule, read_plan
from squall.scheduler.faults.sentence import Fault, parse
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
    assert read_plan(["kill lines every 1s"], [], VIEW, 30.0).for_secs == 30.0


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
        ("sead: 7\nfaults: []", "sead"),
        ("faults: [", "a plan has a list of faults"), ("for: soon\nfaults: []", "duration 'soon' is not understood"),
        ("\x00", "a plan has a list of faults"),
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


def begun(schedule: Schedule, now: float, acked: int = 0, away: bool = False) -> list[Fault]:
    """The faults that begin, or whose targets are away."""
    found = []
    for course in schedule.due(now, acked):
        found.append(course.occurrence)
        course.is_away(now, "dead") if away else course.has_begun(now)
    return found


def followed(line: str, until_secs: float) -> list[float]:
    """Times at which a line's fault begins, looked at every tenth of a second."""
    schedule = Schedule([parse(line)], 1)
    return [tenths / 10 for tenths in range(round(until_secs * 10) + 1) if begun(schedule, tenths / 10)]


def test_once_again_and_without_end() -> None:
    assert followed("kill count at 3s", 100) == [3]
    assert followed("kill count", 100) == [0]
    assert followed("partition a b for 3s at 2s every 10s, 3 times", 100) == [2, 12, 22]
    assert followed("stop count for 2s every 5s", 11) == [0, 5, 10]


def test_after_so_many_acks() -> None:
    schedule = Schedule([parse("kill count after 100 acked every 2s, 2 times")], 1)
    assert [bool(begun(schedule, now, acked)) for now, acked in ((5, 99), (6, 100), (7, 100), (8, 1), (20, 900))] == [
        False, True, False, True, False,
    ]  # fmt: skip


def test_one_that_is_away_is_tried_again_with_the_same_seed() -> None:
    schedule = Schedule([parse("kill random worker at 1s")], 1)
    [first] = begun(schedule, 1.0, away=True)
    assert begun(Schedule([parse("kill random worker at 1s")], 1), 1.0) == [first], "of the same seed"
    assert begun(schedule, 1 + 0.9 * AGAIN_SECS) == []
    assert begun(schedule, 1 + AGAIN_SECS) == [first]
    assert begun(schedule, 100) == []


def test_faults_that_did_not_begin_as_often_as_asked() -> None:
    lines = ("kill count at 1s every 5s 3 times", "kill count at 9s", "kill count every 1s 2 times", "stop a every 5s")
    schedule = Schedule([parse(line) for line in lines], 1)
    for now in range(7):
        begun(schedule, now)
    assert [(course.fault.at_secs, course.begun) for course in schedule.not_begun()] == [(1, 2), (9, 0)]


def test_what_is_told_counts_from_the_start_of_the_run_as_its_report_does(run_dir: RunDir) -> None:
    view = Mock(**{"all_ready.return_value": True, "spout_total.return_value": 0})
    job = Mock(started=time.monotonic() - 1000, **{"record.status": "ACTIVE", "view.return_value": view})
    client = Mock(run_dir=run_dir, **{"inject.return_value": []})
    told: list[str] = []
    FaultDriver(FaultPlan((parse("kill nimbus"),)), client, job, told.append).turn()
    assert re.fullmatch(r"100\S* s: kill nimbus", told[0])
