"""What daemons say of themselves in files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from squall.engine.errors import ClusterError, UsageError
from squall.scheduler.common import process_record
from squall.scheduler.common.process_record import (
    begin_record,
    end_record,
    ending,
    note_begin,
    present_record,
    read_record,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daemons" / "nimbus"


def test_a_record_is_of_the_process_that_began_it(path: Path) -> None:
    assert read_record(path) is None
    assert present_record(path) is None
    begin_record(path, ("python", "-m", "x"))
    record = read_record(path)
    assert record is not None
    assert present_record(path) == record
    assert (record.pid, record.command) == (os.getpid(), ("python", "-m", "x"))
    assert record.lives
    assert record.end_code is None
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("code", [0, 1, 2, 255])
def test_its_end_takes_no_room_and_goes_when_another_begins(path: Path, code: int) -> None:
    begin_record(path)
    size = path.stat().st_size
    end_record(path, code)
    record = read_record(path)
    assert record is not None
    assert (record.end_code, path.stat().st_size) == (code, size)
    assert present_record(path) is None
    begin_record(path)
    again = read_record(path)
    assert again is not None
    assert again.end_code is None


@pytest.mark.parametrize(("error", "code"), [(None, 0), (UsageError("x"), 2), (ClusterError("x"), 1), (KeyError(), 1)])
def test_how_a_daemon_ends_is_written(path: Path, error: Exception | None, code: int) -> None:
    begin_record(path)
    if error is None:
        with ending(path):
            pass
    else:
        with pytest.raises(type(error)), ending(path):
            raise error
    record = read_record(path)
    assert record is not None
    assert record.end_code == code


def test_a_full_disk_ends_no_daemon(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process_record.os, "pwrite", full)
    note_begin(path)
    assert "cannot write" in caplog.text
    assert read_record(path) is None


def test_a_record_whose_directory_was_removed_is_not_missed(path: Path) -> None:
    end_record(path, 0)
    with ending(path):
        pass
    assert not path.exists()


@pytest.mark.parametrize("data", [b"", b"{", b"\xff" * 9000, b'{"pid": "x"}', b" " * 8192 + b"zzzz", b"[" * 8192])
def test_what_is_no_record_says_nothing(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    assert read_record(path) is None


def test_a_command_line_that_is_longer_than_its_room_is_refused(path: Path) -> None:
    with pytest.raises(ClusterError, match="8192 are room for it"):
        begin_record(path, ("x" * 9000,))
