"""Lines are there whole or not at all, whoever dies while writing."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from squall.ipc.line_file import append_line, read_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def test_what_was_written_is_read_in_order(path: Path) -> None:
    assert read_lines(path) == []
    assert append_line(path, "one") == 4
    assert append_line(path, "zwölf") == 11
    assert read_lines(path) == [b"one", "zwölf".encode()]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", [b"half", b"x" * 10_000])
@pytest.mark.parametrize("before", [b"", b"whole\n"])
def test_a_line_that_a_death_has_torn_is_neither_read_nor_continued(path: Path, before: bytes, torn: bytes) -> None:
    path.write_bytes(before + torn)
    assert read_lines(path) == before.split()
    append_line(path, "next")
    assert path.read_bytes() == before + b"next\n"


def test_a_line_that_does_not_fit_leaves_nothing(path: Path) -> None:
    append_line(path, "whole")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            append_line(path, "x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == b"whole\n"


def test_a_process_that_is_forked_in_the_middle_does_not_keep_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, children = os.write, []

    def write_and_fork(fd: int, data: bytes) -> int:
        if not children:
            children.append(os.fork())
            if not children[0]:
                signal.pause()
        return write(fd, data)

    monkeypatch.setattr(os, "write", write_and_fork)
    try:
        append_line(path, "one")
        append_line(path, "two")
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert read_lines(path) == [b"one", b"two"]
