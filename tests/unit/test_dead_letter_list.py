"""`squall dead-letters` shows whole ids, and of a long error its beginning; `--json` has all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.cli.dead_letters import dead_letters
from squall.engine.api.failure import Failure
from squall.engine.errors import UsageError
from squall.ipc.rundir import RunDir
from squall.scheduler.records.dead_letters import DeadLetters

LONG = "ValueError: " + "cannot digest this " * 25


def test_a_long_error_takes_no_room_from_the_others(tmp_path: Path) -> None:
    run_dir = RunDir.create(tmp_path / "run")
    ledger = DeadLetters(run_dir.topology_state("poison"))
    ledger.add("numbers", 0, 333, (333, "x" * 1000), Failure("exception", "bad", 3, "node-1:6700", LONG, 5))
    ledger.add("numbers", 0, 334, (334, "y"), Failure("worker died", attempt=2))
    shown = CliRunner().invoke(dead_letters, ["poison", "--dir", str(run_dir.path)])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    long, other = (next(line for line in lines if letter.id in line) for letter in ledger.read())
    assert long.split()[2:4] == ["numbers[0]", "333"]
    assert "exception in bad[3] on node-1:6700: ValueError: cannot digest" in long
    assert long.endswith("... (attempt 5)")
    assert "(334, 'y')" in other
    assert other.endswith("worker died (attempt 2)")
    as_json = CliRunner().invoke(dead_letters, ["poison", "--dir", str(run_dir.path), "--json"])
    assert json.loads(as_json.output)["letters"][0]["error"] == LONG


def test_the_directory_of_the_environment_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = RunDir.create(tmp_path / "run")
    DeadLetters(run_dir.topology_state("poison")).add("numbers", 0, 333, (333,), Failure("failed", attempt=2))
    assert CliRunner().invoke(dead_letters, ["poison"]).exit_code != 0
    monkeypatch.setenv("SQUALL_DIR", str(run_dir.path))
    shown = CliRunner().invoke(dead_letters, ["poison"])
    assert shown.exit_code == 0, shown.output
    assert f"1 dead letter of poison in {run_dir.path}" in shown.output


@pytest.mark.parametrize("replay", [(), ("--replay",)])
def test_an_id_that_is_not_there_is_an_error(tmp_path: Path, replay: tuple[str, ...]) -> None:
    run_dir = RunDir.create(tmp_path / "run")
    DeadLetters(run_dir.topology_state("poison")).add("numbers", 0, 333, (333,), Failure("failed", attempt=2))
    wrong = CliRunner().invoke(dead_letters, ["poison", "--dir", str(run_dir.path), "--id", "none", *replay])
    assert isinstance(wrong.exception, UsageError)
    assert "there is no dead letter 'none' in " in str(wrong.exception)
