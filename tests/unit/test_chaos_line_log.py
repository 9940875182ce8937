"""Digests of values, and files of whole lines."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.checker import CheckedRun, read_lines
from squall.chaos.tapping import LineLog, UnendedMessages, digest

Point = make_dataclass("Point", ["x", "y"])
Point.__module__ = __name__
A = "a" * 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((A, A), ("aaa", "".join(["a", "aa"]))),
        ({"a": 1, "b": (2,)}, {"b": (2,), "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (({"a": {1, 2}},), ({"a": {2, 1}},)),
        (Point(1, 2), Point(1, 2)),
    ],
)
def test_equal_values_have_one_digest(one: Any, other: Any) -> None:
    assert digest(one) == digest(other)


def test_other_values_have_others() -> None:
    values: list[Any] = [
        (), [], "", b"", None, 0, False, 0.0, "0", ("a", "b"), ("ab",), ("a", ("b",)), {"a": 1}, {"a"}, ("a", 1),
        frozenset({"a"}), {1: "a"}, Point(1, 2), Point(2, 1), (Point(1, 2),), 2**70, float("nan"), "\udc80", [{}],
        ({},),
    ]  # fmt: skip
    assert len({digest(value) for value in values}) == len(values)


def test_odd_values_have_one_too() -> None:
    itself: list[Any] = []
    itself.append(itself)

    class Refuses:
        def __reduce__(self) -> Any:
            raise ValueError("not me")

    for value in (itself, lambda: 1, (Refuses(), {"a": threading.Lock()})):
        assert len(digest(value)) == 16


def test_every_process_says_the_same() -> None:
    assert digest(("a", 1, {"b": {3, "c", None}})) == "93bb0bafcd044f9c"


def test_lines_of_several_writers_do_not_mix(tmp_path: Path) -> None:
    def write(number: int) -> None:
        log = LineLog(tmp_path / "log")
        for count in range(200):
            log.append("in", str(number) * 500, [], "\n\udc80\x00", count)
        log.close()

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    run = CheckedRun()
    assert len(list(read_lines(tmp_path / "log", run))) == 800
    assert (run.torn, run.damaged) == (0, [])


def test_messages_are_open_until_they_are_answered(tmp_path: Path) -> None:
    one, two = LineLog(tmp_path / "source-one"), LineLog(tmp_path / "source-two")
    found = UnendedMessages(str(tmp_path))
    assert found.read() == set()
    one.append("emit", "a", 1, 'lines[0] message "x"')
    one.append("emit", "b", 1, "lines[0] message 2")
    one.append("untracked", "lines", 2)
    assert found.read() == {b"a", b"b"}
    one.append("fail", "a", 3, "worker died")
    # Another life of the task, whose file is read first or last.
    two.append("ack", "a", 4)
    two.append("dead", "b", 5, "exception")
    two.append("emit", "c", 6, "lines[0] message 3")
    (tmp_path / "sink-three").write_bytes(b'["emit","z",1,1]\n')
    assert found.read() == {b"c"}
    with (tmp_path / "source-two").open("ab") as file:
        file.write(b'["ack","c",')
    assert found.read() == {b"c"}
    one.close()
    two.close()
