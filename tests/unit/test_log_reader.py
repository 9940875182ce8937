"""A LogReader loses nothing that it could see, tells what it could not, and gives no two lines one number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError
from squall.pipeline.tail.log_reader import LogReader
from tests.unit.rotated_log import RotatedLog


class Life:
    """A reader in one life."""

    def __init__(self, log: Path, position: int = 0) -> None:
        self.reports: list[str] = []
        self.position = position
        self.now_ns = 0
        self.reader = LogReader(log, log.parent.parent / "files", position, 2.0, self.reports.append)

    def go(self, secs: float = 5) -> list[bytes]:
        lines = []
        for _ in range(round(secs * 10)):
            self.now_ns += NS_PER_SEC // 10
            lines += self.reader.look(self.now_ns, self.position)[1]
        return lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "access.log"


@pytest.mark.parametrize("seed", [*range(40), 10299, 12727, 12910])
def test_every_way_to_rotate_with_deaths(log: Path, seed: int) -> None:
    RotatedLog(seed, log.parent).run()


def test_a_file_that_was_read_and_is_compressed_is_not_told(log: Path) -> None:
    log.write_text("one\n")
    life = Life(log)
    life.go()
    log.rename(log.with_name("access.log.1"))
    log.write_text("two\n")
    life.go()
    log.with_name("access.log.1.gz").write_bytes(gzip.compress(b"one\n"))
    log.with_name("access.log.1").unlink()
    life.position = 8
    life.go(100)
    assert life.reports == []


def test_a_file_that_was_seen_and_is_gone_is_told_after_a_death(log: Path) -> None:
    log.write_text("one\n")
    life = Life(log)
    life.go()
    log.rename(log.with_name("access.log.1"))
    log.write_text("two\n")
    life.go(0.5)
    life.reader.close()
    log.unlink()
    log.write_text("three\n")
    after = Life(log, position=4)
    assert after.go() == [b"three\n"]
    (report,) = after.reports
    assert report.startswith("the file of which nothing was read is gone: its lines are lost")
    assert report.endswith("it began with 'two'")


def test_lines_that_were_not_acked_and_are_gone_are_told(log: Path) -> None:
    log.write_text("one\n")
    life = Life(log)
    life.go()
    log.rename(log.with_name("access.log.1"))
    log.write_text("two\n")
    assert life.go() == [b"two\n"]
    life.reader.close()
    log.with_name("access.log.1").unlink()
    after = Life(log)
    assert after.go() == [b"two\n"]
    assert "the file of 4 bytes that were read before is gone, before all of them were acked" in str(after.reports)


@pytest.mark.parametrize(("position", "lost"), [(0, True), (4, True), (8, False)])
def test_a_file_that_was_left_and_is_gone_is_told_unless_all_is_acked(log: Path, position: int, lost: bool) -> None:
    log.write_text("one\ntwo\n")
    life = Life(log)
    life.go()
    log.rename(log.with_name("access.log.1"))
    log.write_text("x")
    assert life.go() == []
    life.reader.close()
    log.with_name("access.log.1").unlink()
    after = Life(log, position)
    log.write_text("x\n")
    assert after.go() == [b"x\n"]
    assert ["is gone" in report for report in after.reports] == [True] * lost


def test_what_cannot_be_stored_is_not_given(log: Path) -> None:
    log.write_text("one\n")
    life = Life(log)
    obstacle = log.parent.parent / "files.new"
    obstacle.mkdir()
    with pytest.raises(IsADirectoryError):
        life.go()
    obstacle.rmdir()
    assert life.go() == [b"one\n"]


def test_damaged_state(log: Path) -> None:
    log.write_text("one\n")
    state = log.parent.parent / "files"
    for text in ("", "{}", "[]", json.dumps({"life": 1, "files": [], "pieces": [[0, 0, 0, 0]]})):
        state.write_text(text)
        with pytest.raises(ClusterError, match="begin anew, submit it with --fresh"):
            Life(log)
