"""The checkpoint of a topology on Spark: what is refused, and that a batch is done or not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall import BasicBolt, ClusterError, Topology, UsageError, spout
from squall.pipeline.on_spark.batch_control import Control
from squall.pipeline.on_spark.checkpoint import Checkpoint
from tests.unit.wired import wired

source = spout("n", "m")(lambda: [(1, 2)])


class Out(BasicBolt):
    pass


def topology(tasks: int = 2, bolt: type[BasicBolt] = Out, field: str = "n") -> Topology:
    return wired(**{"in": (source, 1), "out": (bolt(), tasks, f"fields in {field}")}).build()


def opened(path: Path, made: Topology | None = None, name: str = "t", arguments: Any = (), acks: int = 1) -> Checkpoint:
    return Checkpoint(path, made or topology(), name, arguments, acks)


def test_it_goes_on_after_the_last_batch_that_was_done(tmp_path: Path) -> None:
    with opened(tmp_path / "c") as first:
        assert first.control.number == -1
        batch = first.new_batch(0)
        batch.mkdir()
        lost = first.new_batch(0)
        lost.mkdir()
        first.done(Control(number=0, spouts_at=batch.name, bolts_at=batch.name), [{"message_id": "1"}])
        assert not lost.exists()
    with opened(tmp_path / "c") as second:
        assert second.control.number == 0
        assert batch.exists()
        after = second.new_batch(1)
        after.mkdir()
        second.done(replace(second.control, number=1, spouts_at=after.name), [])
        # The bolts are where they were before.
        assert batch.exists()
    assert [json.loads(line) for line in second.letters.read_text().splitlines()] == [{"batch": 0, "message_id": "1"}]


@pytest.mark.parametrize(
    ("other", "name", "arguments", "why"),
    [
        (topology(), "u", ("in",), "its name are 't', not 'u'"),
        (topology(), "t", (), r"its arguments are \['in'\], not \[\]"),
        (topology(tasks=3), "t", ("in",), "its components are .*'tasks': 3"),
        (topology(bolt=type("Other", (Out,), {})), "t", ("in",), "its components are .*'Other'"),
        (topology(field="m"), "t", ("in",), "its components are "),
    ],
)
def test_another_topology_is_refused_in_a_line(
    other: Topology, name: str, arguments: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    opened(tmp_path / "c", arguments=("in",)).__exit__()
    with pytest.raises(UsageError, match=f"^--checkpoint {tmp_path}/c is of another topology: {why}.*directory$"):
        opened(tmp_path / "c", other, name, arguments)
    with pytest.raises(UsageError, match="its ackers are 1, not 0"):
        opened(tmp_path / "c", arguments=("in",), acks=0)
    opened(tmp_path / "c", arguments=("in",)).__exit__()


def test_a_dead_letter_of_a_batch_that_was_not_done_is_there_once(tmp_path: Path) -> None:
    with opened(tmp_path / "c") as first:
        first.done(Control(number=0), [{"message_id": "1"}])
        before = (first.path / "control.pickle").read_bytes()
        first.done(replace(first.control, number=1), [{"message_id": "2"}])
        # Killed between the two.
        (first.path / "control.pickle").write_bytes(before)
    with opened(tmp_path / "c") as second:
        assert second.control.number == 0
        second.done(replace(second.control, number=1), [])
        second.done(replace(second.control, number=2), [{"message_id": "2"}])
    with opened(tmp_path / "c") as third:
        third.letters.write_bytes(third.letters.read_bytes() + b'{"batch": 3, "mess')
    with opened(tmp_path / "c") as fourth:
        letters = [json.loads(line) for line in fourth.letters.read_text().splitlines()]
    assert letters == [{"batch": 0, "message_id": "1"}, {"batch": 2, "message_id": "2"}]


def test_what_is_no_checkpoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.touch()
    for path, why in ((tmp_path, r"holds 'thesis.txt', and no checkpoint"), (thesis, "cannot be used: File exists")):
        with pytest.raises(UsageError, match=why):
            opened(path)
    assert list(tmp_path.iterdir()) == [thesis]


@pytest.mark.parametrize(("file", "data"), [
    ("topology.json", b"{"), ("topology.json", b"[]"), ("topology.json", b'{"version": 99, "run": "x"}'),
    ("control.pickle", b"nonsense"),
])
def test_a_damaged_checkpoint_is_named(file: str, data: bytes, tmp_path: Path) -> None:
    opened(tmp_path / "c").__exit__()
    (tmp_path / "c" / file).write_bytes(data)
    with pytest.raises(ClusterError if file == "control.pickle" else UsageError, match=str(tmp_path / "c")):
        opened(tmp_path / "c")
