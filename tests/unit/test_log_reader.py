"""A LogReader loses nothing that it could see, tells what it could not, and gives no two lines one number."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.engine.errors import ClusterError
from tests.unit.rotated_log import RotatedLog


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "access.log"


@pytest.mark.parametrize("seed", [*range(30), 31, 10299, 12727])
def test_every_way_to_rotate_with_deaths(log: Path, seed: int) -> None:
    RotatedLog(seed, log.parent).run()


def test_a_file_that_was_read_and_is_compressed_is_not_told(log: Path) -> None:
    life = RotatedLog(0, log.parent)
    log.write_text("one\n")
    life.wait()
    life.rename()
    life.write()
    life.wait()
    life.compress()
    life.ack(1.0)
    for _ in range(5):
        life.wait()
    assert life.reports == []


@pytest.mark.parametrize(("acks", "told"), [(0.0, ["only 0 bytes"]), (0.5, ["only 4 bytes"]), (1.0, [])])
def test_a_file_that_was_left_and_is_gone_is_told_unless_all_is_acked(
    log: Path, acks: float, told: list[str]
) -> None:
    life = RotatedLog(1, log.parent)  # whose half of the acks is the first line
    log.write_text("one\ntwo\n")
    life.wait()
    log.rename(log.with_name("access.log.1"))
    log.write_text("x")
    life.wait()
    assert list(life.texts.values()) == [b"one\n", b"two\n"]
    life.ack(acks)
    life.kill()
    log.with_name("access.log.1").unlink()
    log.write_text("x\n")
    for _ in range(3):
        life.wait()
    assert b"x\n" in life.texts.values()
    assert [text in report for text, report in zip(told, life.reports, strict=True)] == [True] * len(told)


def test_what_cannot_be_stored_is_not_given(log: Path) -> None:
    life = RotatedLog(0, log.parent)
    log.write_text("one\n")
    obstacle = life.state.with_name("state-0.new")
    obstacle.mkdir()
    with pytest.raises(IsADirectoryError):
        life.wait()
    obstacle.rmdir()
    life.wait()
    assert list(life.texts.values()) == [b"one\n"]


def test_damaged_state(log: Path) -> None:
    log.write_text("one\n")
    for text in ("", "{", "[1]", "[[0]]"):
        (log.parent.parent / "state-0").write_text(text)
        with pytest.raises(ClusterError, match="begin anew, submit it with --fresh"):
            RotatedLog(0, log.parent)
