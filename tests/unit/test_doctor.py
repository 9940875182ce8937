"""What `squall doctor` says of a machine."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from squall.cli.looking import setup
from squall.cli.looking.setup import COULD_BE_BETTER, MISSING, OK, Facts, findings, read_facts
from squall.engine.errors import UsageError
from squall.scheduler.common.daemon import raise_files_limit
from tests.unit.source import ROOT

GOOD = Facts(directory="/run")


def test_a_machine_that_lacks_nothing_needs_no_mend() -> None:
    assert {(one.state, one.mend) for one in findings(GOOD)} == {(OK, "")}


@pytest.mark.parametrize(("what", "state", "wrong", "told"), [
    ("open files", MISSING, {"open_files": 100}, "ulimit -n"),
    ("open files", COULD_BE_BETTER, {"open_files": 1024}, "ulimit -n"),
    ("processes", MISSING, {"processes": 20}, "ulimit -u"),
    ("file bytes", MISSING, {"file_bytes": 8192}, "ulimit -f"),
    ("file bytes", COULD_BE_BETTER, {"file_bytes": 64 << 20}, "LimitFSIZE="),
    ("disk", MISSING, {"disk_bytes": 1}, "--dir"),
    ("cores", COULD_BE_BETTER, {"cores": 4, "quota_cores": 1.5}, "--cpus"),
    ("cores", COULD_BE_BETTER, {"cores": 1}, "taskset"),
    ("time slices", COULD_BE_BETTER, {"throttled": 7}, "--cpuset-cpus"),
    ("Python", COULD_BE_BETTER, {"python_configured": "--enable-shared"}, "--enable-optimizations"),
    ("Python", COULD_BE_BETTER, {"python_is_debug": True}, "--enable-optimizations"),
    ("Java", COULD_BE_BETTER, {"java": None}, "JAVA_HOME"),
    ("Java", COULD_BE_BETTER, {"java": 11}, "17 or newer"),
    ("extras", COULD_BE_BETTER, {"absent": ("spark", "ui")}, "pip install 'squall[spark,ui]'"),
    ("ptrace", COULD_BE_BETTER, {"ptrace_scope": 1}, "ptrace_scope=0"),
    ("arena", COULD_BE_BETTER, {"dumpable": False}, "setcap -r"),
])
def test_what_is_wrong_is_told_with_its_mend(what: str, state: str, wrong: dict[str, Any], told: str) -> None:
    [finding] = [one for one in findings(replace(GOOD, **wrong)) if one.state != OK]
    assert (finding.what, finding.state) == (what, state)
    assert told in finding.mend


def test_the_exit_code_says_whether_squall_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for facts, code in ((GOOD, 0), (replace(GOOD, java=None), 0), (replace(GOOD, disk_bytes=1), 1)):
        monkeypatch.setattr(setup, "read_facts", lambda directory, facts=facts: facts)
        assert CliRunner().invoke(setup.doctor_command, []).exit_code == code


def test_open_files_are_refused_for_so_many_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (48, 111))
    assert read_facts(tmp_path).open_files == 111
    with pytest.raises(UsageError, match=r"^111 files .* 112 are needed for 12 workers: ulimit -n 112$"):
        raise_files_limit(12)


def test_every_extra_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == [f"squall[{','.join(sorted(read_facts(tmp_path).absent))}]"]


def test_the_facts_of_this_machine_can_be_read_before_there_is_a_cluster(tmp_path: Path) -> None:
    facts = read_facts(tmp_path / "not" / "there")
    assert (facts.directory, facts.cores > 0, facts.disk_bytes > 0) == (str(tmp_path), True, True)
