"""A LogReader loses nothing that it could see, tells what it could not, and gives no two lines one number."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError
from squall.pipeline.tail.log_reader import LogReader
from tests.unit.rotated_log import RotatedLog


class Life:
    """A reader in one life."""

    def __init__(self, log: Path) -> None:
        self.reports: list[str] = []
        self.given: list[tuple[int, int]] = []
        self.now_ns = 0
        self.reader = LogReader(log, log.parent.parent / "files", 2.0, self.reports.append)

    def go(self, secs: float = 5) -> list[bytes]:
        lines = []
        for _ in range(round(secs * 10)):
            self.now_ns += NS_PER_SEC // 10
            if found := self.reader.look(self.now_ns):
                for line in found[1]:
                    self.given.append((found[0].life, found[0].read))
                    found[0].read += len(line)
                    lines.append(line)
        return lines

    def ack(self, count: int = 1_000_000) -> None:
        del self.given[:count]
        self.reader.store(self.given)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "access.log"


@pytest.mark.parametrize("seed", [*range(30), 31, 10299, 12727])
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
    life.ack()
    life.go(100)
    assert life.reports == []


@pytest.mark.parametrize(("acks", "lost"), [(0, True), (1, True), (2, False)])
def test_a_file_that_was_left_and_is_gone_is_told_unless_all_is_acked(log: Path, acks: int, lost: bool) -> None:
    log.write_text("one\ntwo\n")
    life = Life(log)
    life.go()
    log.rename(log.with_name("access.log.1"))
    log.write_text("x")
    assert life.go() == []
    life.ack(acks)
    life.reader.close()
    log.with_name("access.log.1").unlink()
    after = Life(log)
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
    for text in ("", "{", "[1]", "[[0]]"):
        state.write_text(text)
        with pytest.raises(ClusterError, match="begin anew, submit it with --fresh"):
            Life(log)
