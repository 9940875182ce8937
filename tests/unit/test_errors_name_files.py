"""What the system refuses is told with the file that it is about, or with the cluster's directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from squall.cli import main
from squall.cli.steering import cluster as up_module
from squall.engine.errors import ClusterError
from squall.ipc.private import append_line, naming
from squall.ipc.rundir import RunDir
from squall.scheduler.common.role import last_words


def full(*_: Any, **__: Any) -> NoReturn:
    """As a call on a descriptor says it: of no file."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_only_what_names_nothing_is_named() -> None:
    with pytest.raises(OSError, match="No space left on device: '/a'"), naming("/a"):
        full()
    with pytest.raises(FileNotFoundError, match="'/nowhere'"), naming("/a"):
        os.stat("/nowhere")
    with pytest.raises(OSError, match=r"^text$"), naming("/a"):
        raise OSError("text")


@pytest.mark.parametrize(("name", "write"), [
    ("run/key", RunDir.create), ("run", lambda path: append_line(path, "x")),
])
def test_a_file_without_room_is_named_and_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], object]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left on device: ") as caught:
            write(tmp_path / "run")
    assert caught.value.filename == str(tmp_path / name)
    assert not [*tmp_path.glob("run/*")]


def test_a_lock_without_room_is_named_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = RunDir.create(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(ClusterError, match=f"cannot write {run_dir.lock_file}: No space left on device"):
            run_dir.lock()
    assert run_dir.lock_holder() is None
    run_dir.lock().close()


def test_a_command_names_the_directory_of_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up_module, "start_cluster", full)
    with pytest.raises(SystemExit) as end:
        main(["up", "--detach", "--dir", str(tmp_path / "run")])
    assert end.value.code == 1
    assert capfd.readouterr().err == f"squall: {tmp_path}/run: No space left on device\n"


def test_the_last_words_of_a_daemon_are_not_those_of_an_earlier_one(run_dir: RunDir) -> None:
    log = run_dir.daemon_log("nimbus")
    log.write_text("of before\n")
    size = log.stat().st_size
    words = [last_words(run_dir, *which) for which in (("nimbus",), ("nimbus", size), ("none", size))]
    assert words == ["of before", "", ""]
    log.write_text("of before\nnow\n")
    assert last_words(run_dir, "nimbus", size) == "now"
