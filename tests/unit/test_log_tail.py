"""Following log files: every line once, in order, whole, with the worker that wrote it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from squall.scheduler.common.logs import OLDER_LOGS, LogTail, older_log


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def tail(tmp_path: Path) -> LogTail:
    return LogTail(tmp_path)


def test_lines_of_an_earlier_run_are_not_shown_again_and_the_directory_may_come_later(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert LogTail(logs).poll() == []
    logs.mkdir()
    write(logs / "node-1-6700.log", "earlier\n")
    tail = LogTail(logs)
    assert tail.poll() == []
    write(logs / "node-1-6700.log", "now\n")
    write(logs / "node-2-6700.log", "a\n")
    assert tail.poll() == [("node-1:6700", "now"), ("node-2:6700", "a")]


def test_file_that_was_cut_is_read_from_its_start(tmp_path: Path, tail: LogTail) -> None:
    log = tmp_path / "n-1.log"
    write(log, "old old old\nhalf a li")
    assert tail.poll() == [("n:1", "old old old")]
    log.write_text("new\n")
    assert tail.poll() == [("n:1", "new")]


def test_random_writes_to_several_logs(tmp_path: Path, tail: LogTail, seed: int) -> None:
    dice = random.Random(seed)
    written, seen = (dict.fromkeys(("a:1", "b:1", "c:1"), "") for _ in range(2))
    for turn in range(300):
        worker = dice.choice("abc")
        piece = "".join(dice.choices("xy\n", k=dice.randrange(20)))
        write(tmp_path / f"{worker}-1.log", piece)
        written[f"{worker}:1"] += piece
        if dice.random() < 0.5 or turn == 299:
            for name, line in tail.poll():
                seen[name] += f"{line}\n"
    assert seen == {name: text[: text.rfind("\n") + 1] for name, text in written.items()}


def turn_over(log: Path) -> None:
    for number in range(OLDER_LOGS, 0, -1):
        if older_log(log, number - 1).exists():
            older_log(log, number - 1).replace(older_log(log, number))


def test_a_log_that_is_turned_over_is_read_to_its_end(tmp_path: Path, tail: LogTail) -> None:
    log = tmp_path / "node-1-6700.log"
    write(log, "one\ntw")
    assert tail.poll() == [("node-1:6700", "one")]
    write(log, "o\n")
    turn_over(log)
    assert tail.poll() == []
    write(log, "three\n")
    turn_over(log)
    write(log, "four\n")
    assert [line for _, line in tail.poll()] == ["two", "three", "four"]
    assert [line for _, line in LogTail(tmp_path, from_start=True).poll()] == ["one", "two", "three", "four"]
