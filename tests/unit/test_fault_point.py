"""A step that is armed by a file is the last thing that a process does; one that is not does nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall.engine.errors import UsageError
from squall.ipc.fault_point import ENVIRONMENT, arm, disarm, hit_by, pass_point, tear
from tests.unit.dying import dies_at


def test_nothing_happens_where_nothing_is_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    arm(tmp_path, "a.b")
    pass_point("a.b")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    pass_point("a.c")
    assert hit_by(tmp_path, "a.b") == 0
    disarm(tmp_path, "a.b")
    disarm(tmp_path, "a.b")
    pass_point("a.b")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gone"))
    pass_point("a.b")


@pytest.mark.parametrize("said", ["", "x", "-1", "1.5", "1,2", "\u00b2", "\n", "9" * 40 + "x"])
def test_a_file_that_arms_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    (tmp_path / "a.b").write_text(said)
    with pytest.raises(UsageError, match=r"a\.b says b'.*', allowed is the number of the pass"):
        pass_point("a.b")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "a.b"))
    with pytest.raises(UsageError, match=f"{ENVIRONMENT}: cannot open .*a\\.b/c\\.d: Not a directory"):
        pass_point("c.d")


@pytest.mark.parametrize("nth", [1, 2, 7])
def test_the_nth_pass_is_the_last(tmp_path: Path, nth: int) -> None:
    passed = tmp_path / "passed"

    def work() -> None:
        for _ in range(9):
            pass_point("a.b")
            with passed.open("a") as file:
                file.write(".")

    assert dies_at(tmp_path / "points", "a.b", work, nth)
    assert (passed.read_text() if passed.exists() else "") == "." * (nth - 1)


def test_it_happens_once_and_passes_of_all_processes_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm(tmp_path, "a.b", 3)
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    pass_point("a.b")
    codes = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            pass_point("a.b")
            os._exit(0)
        codes.append((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    assert [code for _, code in codes] == [0, -9, 0, 0]
    assert hit_by(tmp_path, "a.b") == codes[1][0]


def test_a_write_is_torn_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def work() -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        tear("a.b", fd, b"123456")
        os.write(fd, b"123456")

    assert not dies_at(tmp_path / "points", "a.c", work)
    assert path.read_bytes() == b"123456"
    path.unlink()
    assert dies_at(tmp_path / "points", "a.b", work)
    assert path.read_bytes() == b"123"
