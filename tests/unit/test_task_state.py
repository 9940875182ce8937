"""State that a topology casts off: aside, then gone, or back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import TopologyRecord
from squall.scheduler.nimbus.nimbus_files import NimbusFiles
from squall.scheduler.records.topology_files import left_by_earlier

RECORD = TopologyRecord("x-1-00000000", "x", "ACTIVE", {}, [], "", [], 0.0)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path)
    for task in (0, 1):
        (made.topology_state("x") / f"spout-{task}").mkdir(parents=True)
        (made.topology_state("x") / f"spout-{task}" / "position").write_text(str(task))
    made.attempts("x", "spout", 0).mkdir(parents=True)
    (made.topology_state("x") / ".given-back" / "spout-0").mkdir(parents=True)
    (made.topology_state("x") / "dead-letters.jsonl").write_text("letters")
    return made


def files(run_dir: RunDir) -> dict[str, str]:
    state = run_dir.path / "state"
    return {str(path.relative_to(state)): path.read_text() if path.is_file() else "" for path in state.rglob("*")}


LETTERS = {"x": "", "x/.given-back": "", "x/.given-back/spout-0": "", "x/dead-letters.jsonl": "letters"}


def test_it_is_aside_and_then_gone(run_dir: RunDir) -> None:
    aside = run_dir.set_aside("x", RECORD.id)
    assert {path.name for path in left_by_earlier(run_dir, "x")} == {"spout-0", "spout-1", ".attempts"}
    NimbusFiles(run_dir).set_state_aside(RECORD)
    assert left_by_earlier(run_dir, "x") == []
    assert (aside / "spout-1" / "position").read_text() == "1"
    NimbusFiles(run_dir).discard_state(RECORD)
    assert files(run_dir) == LETTERS


def test_the_next_nimbus_sees_in_the_store_what_to_do(run_dir: RunDir) -> None:
    before = files(run_dir)
    other = TopologyRecord("x-2-00000000", "x", "ACTIVE", {}, [], "", [], 0.0)
    NimbusFiles(run_dir).set_state_aside(RECORD)
    NimbusFiles(run_dir).tidy_state([other], ())
    assert files(run_dir) == before
    NimbusFiles(run_dir).set_state_aside(RECORD)
    NimbusFiles(run_dir).tidy_state([other, RECORD], ())
    assert files(run_dir) == LETTERS


def test_what_has_come_meanwhile_is_not_overwritten(run_dir: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    NimbusFiles(run_dir).set_state_aside(RECORD)
    newer = run_dir.topology_state("x") / "spout-0" / "position"
    newer.parent.mkdir()
    newer.write_text("newer")
    NimbusFiles(run_dir).tidy_state([], ())
    assert newer.read_text() == "newer"
    aside = run_dir.set_aside("x", RECORD.id)
    assert (aside / "spout-0" / "position").read_text() == "0"
    assert f"the state in {aside} cannot be put back" in caplog.text


def test_what_cannot_be_set_aside_stays(run_dir: RunDir) -> None:
    run_dir.set_aside("x", RECORD.id).write_text("in the way")
    before = files(run_dir)
    with pytest.raises(ClusterError, match="cannot set aside the state of an earlier x: "):
        NimbusFiles(run_dir).set_state_aside(RECORD)
    assert files(run_dir) == before
