"""Variables for a topology: kept apart from everything that is shown, and taken on by its workers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from squall.engine.errors import ClusterError, TopologyError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.environment import enter_surroundings, keep_environment, tidy_environments
from squall.scheduler.common.messages import SubmitTopology, TopologyRecord
from squall.scheduler.nimbus.submission import check_submission
from tests.unit.run_dirs import COMPONENTS

RECORD = TopologyRecord("x-1-00000000", "x", "ACTIVE", {}, [], "", [], 0.0, env_names=["A", "TOKEN"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))


def test_nimbus_refuses_what_cannot_be_a_variable() -> None:
    request = SubmitTopology("x", {"workers": 1}, COMPONENTS, "0" * 64, [], env={"a=b": "secret", "C": "secret\0"})
    with pytest.raises(TopologyError) as refused:
        check_submission(request)
    assert "variable name 'a=b' is not allowed" in str(refused.value)
    assert "the value of variable 'C' has a NUL" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_worker_takes_on_what_was_kept(run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    keep_environment(run_dir, RECORD.id, {"A": "1", "TOKEN": "geheim"})
    path = run_dir.environment(RECORD.id)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent)] == [0o600, 0o700]
    enter_surroundings(run_dir, msgspec.structs.replace(RECORD, cwd=str(tmp_path)))
    assert (os.environ["A"], os.environ["TOKEN"], Path.cwd()) == ("1", "geheim", tmp_path)


def test_a_worker_without_them_says_why(run_dir: RunDir, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cannot read the variables of x in .*: No such file or directory; submit"):
        enter_surroundings(run_dir, RECORD)
    keep_environment(run_dir, RECORD.id, {"A": "1"})
    with pytest.raises(ClusterError, match="lacks the variables TOKEN of x"):
        enter_surroundings(run_dir, RECORD)
    run_dir.environment(RECORD.id).write_text('{"A": "geh')
    with pytest.raises(ClusterError, match="it is damaged") as refused:
        enter_surroundings(run_dir, RECORD)
    assert "geh" not in str(refused.value)
    with pytest.raises(ClusterError, match=r"cannot enter the working directory of x, .*/gone: No such file"):
        enter_surroundings(run_dir, msgspec.structs.replace(RECORD, cwd=str(tmp_path / "gone")))


def test_variables_of_a_topology_that_was_never_stored_are_removed(run_dir: RunDir) -> None:
    for name in ("kept-1-00000000", "lost-2-00000000"):
        keep_environment(run_dir, name, {"A": "1"})
    (run_dir.environments / "lost-3-00000000.new").write_text("")
    tidy_environments(run_dir, ["kept-1-00000000"])
    assert [path.name for path in run_dir.environments.iterdir()] == ["kept-1-00000000"]
