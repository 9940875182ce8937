"""What becomes of a forked process, and what the supervisor is told of a worker that ends before it has begun."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from squall.engine.errors import ClusterError
from squall.ipc.rundir import RunDir
from squall.scheduler.common.logs import ProcessLog
from squall.scheduler.forking import child as forked_process
from squall.scheduler.worker import main


def test_a_process_with_threads_does_not_fork() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with pytest.raises(ClusterError, match=r"must have 1 thread, not \d+"):
            forked_process.fork(pytest.fail)
    finally:
        end.set()
        thread.join()


def exit_code_of(work: Callable[[], object], log: str) -> int:
    pid = os.fork()
    if pid == 0:
        forked_process.run_forked(work, log)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def talk() -> int:
    for stream in (sys.stdout, sys.stderr):
        print("x" * 100_000, file=stream)
        stream.flush()
    return 7


def test_a_full_log_keeps_nobody_from_working(tmp_path: Path) -> None:
    os.symlink("/dev/full", tmp_path / "log")
    assert exit_code_of(talk, str(tmp_path / "log")) == 7


def test_what_a_full_log_left_out_is_said_when_there_is_room_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open("/dev/full", os.O_WRONLY)
    log = io.TextIOWrapper(io.BufferedWriter(ProcessLog(fd)), "utf-8", line_buffering=True)
    print("left out", file=log)
    with path.open("w") as room:
        os.dup2(room.fileno(), fd)
    print("there", file=log)
    assert path.read_text() == "[9 bytes were left out here: there was no room]\nthere\n"
    os.close(fd)


@pytest.mark.parametrize(("error", "says"), [
    (MemoryError("4 GiB"), "the worker has no memory left: MemoryError: 4 GiB"),
    (ClusterError("cannot listen on /r/s/x"), "cannot listen on /r/s/x"),
    (OSError(27, "x"), "the machine refuses a worker: OSError: [Errno 27] x; make room, or raise a limit (ulimit -a)"),
    (KeyError("x"), "internal error of the worker, a bug in Squall: KeyError: 'x'"),
])
def test_only_what_is_one_is_called_a_bug_in_squall(
    error: Exception, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Mock()
    monkeypatch.setattr(main, "Worker", Mock(side_effect=error))
    monkeypatch.setattr(main, "ControlClient", lambda *_: control)
    path = str(RunDir.create(tmp_path / "r").path)
    boot: Any = SimpleNamespace(run_dir=path, node="n", sender="s", port=6700, incarnation=1)
    with pytest.raises(type(error)):
        main.worker_main(boot)
    [told] = [call.args[0] for call in control.send_event.call_args_list]
    assert (told.port, told.incarnation, told.error) == (6700, 1, says)
