"""ParquetSink: acks what is on disk and nothing else; what does not fit fails alone; files are whole, and numbered."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import (
    Config,
    ExactSink,
    ParquetSink,
    TopologyBuilder,
    TopologyError,
    UsageError,
)
from squall.pipeline.parquet_sink import SinkDirectory
from squall.pipeline.sink_table import infer
from squall.testing.simulated import SimulatedCluster
from tests.unit.full_disk import no_room
from tests.unit.rig import Feeder
from tests.unit.wired import wired

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


class Lab(SimulatedCluster):
    """A source and sinks."""

    def __init__(
        self, sink: ExactSink, fields: Sequence[str] = ("n", "text"), tasks: int = 1, **settings: Any
    ) -> None:
        inputs = f"fields source {fields[-1]}" if tasks > 1 else "shuffle source"
        topology = wired(source=(Feeder(fields), 1), sink=(sink, tasks, inputs)).build()
        super().__init__(topology, Config(**settings), record=False)
        self.sent: list[Sequence[Any]] = []

    def __enter__(self) -> Lab:
        return self

    def restart(self, worker: int | str) -> None:
        super().restart(worker)
        self.sent.clear()

    def put(self, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.user("source").feed(*row, id=len(self.sent))
            self.sent.append(row)
        self.settle()

    def again(self, message_id: int) -> None:
        """Emit this message and those after it once more."""
        rows = self.sent[message_id:]
        del self.sent[message_id:]
        self.put(*rows)

    @property
    def answers(self) -> list[list[int]]:
        """The acked ones, and the failed ones."""
        source = self.user("source")
        return [source.acked, [message_id for message_id, _ in source.failures]]

    def go(self, secs: float = 1.1) -> None:
        """Let time pass: ticks come when the clock has moved."""
        for _ in range(4):
            self.advance(secs / 4)
            self.settle()

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.errors]


def files(out: Path) -> list[str]:
    return sorted(os.listdir(out))


def rows(out: Path) -> list[dict[str, Any]]:
    """In the order of commits, of one task."""
    return [row for path in sorted(out.glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]


def numbers(out: Path) -> list[int]:
    return [row["n"] for row in rows(out)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "new" / "o ut"


def test_tuples_are_acked_when_their_file_is_there(out: Path) -> None:
    with Lab(ParquetSink(out)) as lab:
        lab.put((1, "a"), (2, "\u2028\0"), (3, None))
        lab.go(0.8)
        assert (lab.answers, files(out)) == ([[], []], [])
        lab.go(0.5)
        assert lab.answers == [[0, 1, 2], []]
        assert rows(out) == [{"n": 1, "text": "a"}, {"n": 2, "text": "\u2028\0"}, {"n": 3, "text": None}]
        common, part = files(out)
        assert common == "_common_metadata"
        assert re.fullmatch(r"part-[0-9a-f]{16}-0000000001\.parquet", part)


@pytest.mark.parametrize(
    ("limits", "sizes"), [({"commit_rows": 4}, [4, 4]), ({"commit_bytes": 3_000}, [3, 3, 3]), ({}, [])]
)
def test_a_file_is_complete_at_its_limits(out: Path, limits: dict[str, Any], sizes: list[int]) -> None:
    with Lab(ParquetSink(out, **limits), max_spout_pending=100) as lab:
        lab.put(*((n, "x" * 1000) for n in range(10)))
        assert [parquet.read_metadata(path).num_rows for path in sorted(out.glob("*.parquet"))] == sizes
        assert len(lab.answers[0]) == sum(sizes)


def test_a_source_that_waits_for_acks_is_not_kept_waiting_twice(out: Path) -> None:
    """With 5 messages at most open, each file of 5 rows would take its full second."""
    with Lab(ParquetSink(out), max_spout_pending=5) as lab:
        lab.put(*((n, "") for n in range(40)))
        lab.go(1.5)
        for _ in range(30):
            lab.advance(0.05)
            lab.settle()
        assert len(lab.answers[0]) == 40


def test_rows_that_trickle_in_do_not_each_get_a_file(out: Path) -> None:
    with Lab(ParquetSink(out)) as lab:
        for n in range(100):
            lab.put((n, ""))
            for _ in range(2):
                lab.advance(0.05)
                lab.settle()
        assert 5 < len(list(out.glob("*.parquet"))) < 15


class Awkward:
    def __iter__(self) -> Iterator[int]:
        raise ZeroDivisionError

    __len__ = __array__ = __float__ = __index__ = __str__ = __repr__ = __bool__ = __eq__ = __iter__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("value", [Awkward(), object(), {1: 2}, [1, "a"], {"a": 1, "b": Awkward()}, Awkward, 1j])
@pytest.mark.parametrize("first", [True, False])
def test_no_object_harms_the_rows_beside_it(out: Path, value: Any, first: bool) -> None:
    with Lab(ParquetSink(out)) as lab:
        lab.put(*[(1, value), (2, "a")] if first else [(1, "a"), (2, value)])
        lab.go()
        assert list(map(len, lab.answers)) == [1, 1]
        assert [row["text"] for row in rows(out)] == ["a"]


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("float64", [1, 2.5, None], [True, "1", 2**60 + 1]),
        ("int64", [1, 5], ["x", 1.5, b"d", 2**70, True]),
        ("int8", [1, -128], [128, 1.5, "1"]),
        ("string", ["a", ""], [b"a", 1, "\ud800"]),
        ("binary", [b"a", bytearray(b"b")], ["a", 1]),
        ("bool", [True], [lambda: 0, 1, "True"]),
        ("timestamp[us]", [NOW], [NOW.replace(tzinfo=datetime.UTC), 5, "2026", NOW.date()]),
        ("date32", [NOW.date()], [NOW, 5]),
        (pyarrow.struct([("a", pyarrow.int64())]), [{"a": 1}, {}], [{"a": 1.5}, {"a": 1, "b": 2}, [1]]),
        (pyarrow.list_(pyarrow.int64()), [[1], (2,), []], [[1.5], "ab", {"a": 1}, 1]),
        (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [{"a": 1}], [{"a": 1.5}, {1: 1}, 1]),
        (pyarrow.decimal128(5, 2), [1], [1.5, 10**6]),
    ],
)
def test_nothing_is_changed_on_the_way(out: Path, type_: Any, good: list[Any], bad: list[Any]) -> None:
    with Lab(ParquetSink(out, schema={"v": type_}), ["v"]) as lab:
        lab.put(*((value,) for value in good + bad))
        lab.go()
        assert lab.answers == [list(range(len(good))), list(range(len(good), len(good + bad)))]
        # All are told of, by value up to the third.
        assert lab.texts[-1].startswith(f"FailedTuple: ParquetSink {out}: field 'v' is ")
        assert "of type" in lab.texts[-1]
        assert len(bad) < 5 or lab.texts[2].endswith("; 2 more tuples of this commit did not fit either")
        assert parquet.read_table(out).column("v").to_pylist() == pyarrow.array(good, _type(type_)).to_pylist()


def _type(type_: Any) -> Any:
    return pyarrow.type_for_alias(type_) if isinstance(type_, str) else type_


def test_types_are_those_of_the_first_rows_and_hold_for_all_tasks_and_lives(out: Path) -> None:
    with Lab(ParquetSink(out), tasks=2) as lab:
        lab.put((1, "a"), (2, "b"))
        lab.go()
        lab.put((3.5, "c"), (4, "d"))
        lab.go()
        assert list(map(sorted, lab.answers)) == [[0, 1, 3], [2]]
        lab.kill(0)
        lab.restart(0)
        lab.put((1, "a"), (2, "b"), (3.5, "c"), (4, "d"), (1.5, "a"), (6, "b"))
        lab.go()
        assert list(map(sorted, lab.answers)) == [[0, 1, 3, 5], [2, 4]]
    assert sorted(numbers(out)) == [1, 2, 4, 6]


def test_what_parquet_cannot_hold_is_no_type() -> None:
    span = pyarrow.MonthDayNano([1, 2, 3])
    assert infer([None, span]) is infer([[span]]) is infer([{"a": span}]) is None


@pytest.mark.parametrize(("dies", "left"), [
    ("before its file", [1]), ("within its file", [1]), ("after its file", [1, 2]),
])
def test_a_row_is_there_once_whenever_its_task_dies(
    out: Path, dies: str, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = SinkDirectory.publish

    def is_killed(self: SinkDirectory, table: Any, name: str) -> None:
        if dies == "after its file":
            publish(self, table, name)
        raise OSError("killed")

    with Lab(ParquetSink(out)) as lab:
        lab.put((1, "a"))
        lab.go()
        with monkeypatch.context() as patch:
            patch.setattr(SinkDirectory, "publish", is_killed)
            lab.put((2, "b"))
            if dies != "before its file":
                lab.go()
            assert lab.answers[0] == [0]
            lab.kill(0)
        assert numbers(out) == left
        lab.restart(0)
        lab.put((1, "a"), (2, "b"), (3, "c"))
        lab.go()
        assert lab.answers[0] == [0, 1, 2]
    assert numbers(out) == [1, 2, 3]
    assert [int(part[-18:-8]) for part in files(out)[1:]] == list(range(1, len(files(out))))


def test_nothing_is_acked_that_cannot_be_written_and_nothing_is_left(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lab(ParquetSink(out)) as lab:
        lab.put((1, "a"), (2, "b"))
        with monkeypatch.context() as patch:
            patch.setattr(ParquetSink, "commit", no_room(100)(ParquetSink.commit))
            lab.go()
        assert lab.answers == [[], [0, 1]]
        assert files(out) == ["_common_metadata"]
        assert lab.texts[0].startswith(
            f"FailedTuple: 2 tuples cannot be written to {out}, and will be emitted again: "
        )
        assert "File too large" in lab.texts[0]
        lab.again(0)
        lab.go()
        assert lab.answers[0] == [0, 1]
    assert numbers(out) == [1, 2]


def test_an_input_without_the_fields_is_refused_when_the_topology_is_built(out: Path) -> None:
    with pytest.raises(TopologyError) as found:
        Lab(ParquetSink(out, fields=["part", "n", "nope"]))
    lacks = "bolt 'sink' needs field 'part', 'nope', which stream 'default' of 'source' does not have"
    assert found.value.mistakes == (f"{lacks}; its fields: n, text",)


def written(out: Path, **sink: Any) -> None:
    with Lab(ParquetSink(out, **sink)) as lab:
        lab.put((1, "a"))


@pytest.mark.parametrize(
    ("sink", "why"),
    [
        ({"fields": "text"}, r"ParquetSink has fields 'text'"),
        ({"fields": ["n", "n"]}, r"give a list of different names"),
        ({"schema": {"n": "integer"}}, r"schema .*: ValueError: No type alias for integer; give a pyarrow.Schema"),
        ({"schema": {"n": "int64"}, "fields": ["m"]}, r"fields \['m'\], and others in its schema"),
        ({"commit_secs": 0}, r"commit_secs 0; allowed: 0\.001 or more"),
        ({"schema": {"n": "int64", "text": "binary"}}, r"has schema .*'binary'.* has .*'string'"),
        ({"fields": ["n"]}, r"has fields \('n',\), but .* has \('n', 'text'\)"),
    ],
)
def test_wrong_arguments_are_named_before_anything_starts(out: Path, sink: dict[str, Any], why: str) -> None:
    written(out)
    with pytest.raises(UsageError, match=why):
        ParquetSink(out, **sink)


def test_only_a_sinks_directory_is_written_to(out: Path, tmp_path: Path) -> None:
    def refused(path: Path, why: str) -> None:
        with pytest.raises(UsageError, match=why):
            ParquetSink(path)

    (tmp_path / "x.parquet").write_text("")
    refused(tmp_path / "x.parquet" / "below", r"x\.parquet is not a directory")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    refused(tmp_path / "link", "link is not a directory")
    refused(tmp_path, r"holds '.+', which is no file of a ParquetSink")
    written(out)
    (out / "_common_metadata").write_bytes(b"PAR1")
    refused(out, r"_common_metadata is not of a ParquetSink: ")
    (out / "_common_metadata").unlink()
    refused(out, r"holds 'part-[0-9a-f]+-0000000001\.parquet', which is no file")


def test_rows_are_not_held_until_their_messages_time_out(out: Path) -> None:
    with pytest.raises(UsageError, match=r"bolt 'sink' has commit_secs 20; allowed: up to 15, half of message_t"):
        Lab(ParquetSink(out, commit_secs=20))


def test_a_component_brings_settings_along_and_set_config_overrides_them() -> None:
    brings, builder = Feeder(), TopologyBuilder()
    brings.component_config = {"max_spout_pending": 7, "debug": True}
    builder.set_spout("a", brings).set_config(debug=False)
    assert builder.build()["a"].config == {"max_spout_pending": 7, "debug": False}
    brings.component_config = {"workers": 2}
    with pytest.raises(TopologyError, match="component 'a'"):
        builder.build()
