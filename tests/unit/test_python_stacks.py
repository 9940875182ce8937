"""Python stacks found in a worker's log: the crash, or what was asked for; nothing of an earlier life, nothing else."""

from __future__ import annotations

from pathlib import Path

from squall.scheduler.common.python_stacks import log_size, python_stack, stack_in

CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f5c (most recent call first):
  File "/x/user.py", line 12 in execute
  File "/x/engine/core/executor.py", line 160 in _process_basic

Extension modules: zmq.backend.cython._zmq (total: 1)
"""
HUNG = """\
Thread 0x00007f01 (most recent call first):
  File "/x/waiting.py", line 3 in wait
user code printed this
Current thread 0x00007f00 (most recent call first):
  File "/x/user.py", line 30 in execute
  File "/x/worker.py", line 150 in run
"""


def test_a_crash_begins_with_its_name() -> None:
    stack = stack_in("some output\n" + CRASH + "output of the next\n")
    assert stack.splitlines()[0] == "Fatal Python error: Segmentation fault"
    assert stack.splitlines()[-1] == '  File "/x/engine/core/executor.py", line 160 in _process_basic'


def test_a_hung_worker_is_where_its_main_thread_is() -> None:
    lines = stack_in("before\n" + HUNG).splitlines()
    assert lines[0] == 'hung at File "/x/user.py", line 30 in execute'
    assert len(lines) == 1 + 5
    assert "printed" not in "".join(lines)


def test_a_log_without_stacks_has_none(tmp_path: Path) -> None:
    assert stack_in("Traceback (most recent call last):\n  File \"x\", line 1\nValueError: File\n") == ""
    assert python_stack(str(tmp_path / "missing"), 0) == ""
    assert log_size(str(tmp_path / "missing")) == 0


def test_what_was_there_before_is_another_lifes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(CRASH)
    since = log_size(str(log))
    assert python_stack(str(log), since) == ""
    with log.open("a") as file:
        file.write(HUNG)
    assert python_stack(str(log), since).startswith("hung at")
