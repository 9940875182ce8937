"""Topologies with state: what `build()` refuses, what users see of identities, and whose state a task takes over."""

from __future__ import annotations

import functools
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from squall import (
    BasicBolt,
    ClusterError,
    ColumnBatch,
    Config,
    CustomGrouping,
    ExactSink,
    FailedTuple,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    TopologyError,
)
from squall.engine.api.columns import Columns
from squall.engine.api.tuple import TupleSource
from squall.engine.core.executor import TaskCrashed
from squall.engine.state.task_store import STORE_FILE, TaskStore
from squall.testing import FixedSpout, SimulatedCluster, complete_topology
from tests.process.state_parts import Again, Count, CountBatch, MoodyCount, Split, SplitBatch, SplitItself, text_of
from tests.unit.wired import wired

LINES = [(text_of(number),) for number in range(8)]
COUNTS = Counter(word for [text] in LINES for word in text.split()[::2])
"""Of the words in the default stream."""


class ByLength(CustomGrouping):
    def prepare(self, *given: Any) -> None:
        self.tasks = given[-1]

    def choose_tasks(self, source_task: int, values: Any) -> list[int]:
        assert len(values) == 1
        return [self.tasks[len(values[0]) % len(self.tasks)]]


def topology(
    split: Any = None, count: Any = None, tasks: int = 2, custom: bool = False, lines: Any = LINES, more: Any = None,
    again: bool = True,
) -> Topology:
    """Lines, their words, counts of these, and counts of counts if `again`; `more` declares more."""
    builder = TopologyBuilder()
    builder.set_spout("lines", FixedSpout(("text",), lines))
    builder.set_bolt("split", split or Split(), parallelism=2).shuffle_grouping("lines")
    bolt = builder.set_bolt("count", count or Count(), parallelism=tasks)
    bolt.custom_grouping("split", ByLength()) if custom else bolt.fields_grouping("split", "word")
    if again:
        builder.set_bolt("again", Count()).global_grouping("count")
    if more:
        more(builder)
    return builder.build()


def state_after(it: Topology, root: str | None = None, config: Config | None = None, secs: float = 0) -> dict[Any, Any]:
    """The state of "count", of all its tasks."""
    with SimulatedCluster(it, config, state_root=root) as cluster:
        cluster.run()
        cluster.advance(secs)
        tasks = range(it["count"].tasks)
        return dict(item for index in tasks for item in cluster.user("count", index).state.items())


# ---- what build() refuses ----


@pytest.mark.parametrize(("make", "named"), [
    *[(lambda by=by: topology(more=lambda b: getattr(b.set_bolt("x", Count(), 2), f"{by}_grouping")("split")),
       f"bolt 'x' has state and reads 'split' by .*{by}.* grouping") for by in ("shuffle", "local_or_shuffle", "none")],
    (lambda: topology(more=lambda b: b.set_bolt("x", Count(), 2).partial_key_grouping("split", "word")),
     r"bolt 'x' has state and reads 'split' by .*partial.* grouping"),
    (lambda: topology(more=lambda b: b.set_bolt("x", Count()).none_grouping("split").all_grouping("split")),
     r"bolt 'x' reads stream 'default' of 'split' twice"),
    (lambda: topology(more=lambda b: (b.set_bolt("x", Split()).all_grouping("y").all_grouping("lines"),
                                      b.set_bolt("y", Count()).all_grouping("x"))), r"(x -> y -> x|y -> x -> y) is a"),
    *[(lambda named=(name, bad): topology(count=type("Changed", (Count,), dict([named]))()),
       f"bolt 'count' has (state and )?{name}") for name, bad in [
        ("blocking", True), *[("state_ttl_secs", bad) for bad in (0, -1, "1", math.nan, math.inf, 1e30)],
        *[("state_kept_keys", bad) for bad in (0, 1.5, None)], ("durability", "none"),
    ]],
    (lambda: topology(count=type("Sink", (ExactSink,), {"blocking": True, "commit": print})(), again=False),
     "bolt 'count' has state and blocking = True; allowed: False"),
    *[(lambda named=(name, bad): topology(count=type("Sink", (ExactSink,), dict([named], commit=print))(), again=False),
       f"bolt 'count' has {name} {bad!r}; ") for name, bad in [
        ("durability", "fully"), ("commit_secs", "1"), ("commit_secs", math.nan), ("commit_rows", 0),
    ]],
    (lambda: topology(more=lambda b: b.set_spout("x", FixedSpout(("__id",), []))), "'x'.*'__id', which is the system"),
])
def test_build_refuses_what_would_count_twice(make: Callable[[], Topology], named: str) -> None:
    with pytest.raises(TopologyError, match=named):
        make()


def test_what_does_not_lead_to_state_is_left_as_it_is() -> None:
    def plain(builder: TopologyBuilder) -> None:
        builder.set_spout("numbers", FixedSpout(("text",), []))
        builder.set_bolt("x", Split(), 2).shuffle_grouping("numbers")
        builder.set_bolt("sink", Again()).global_grouping("x").global_grouping("again")

    it = topology(more=plain)
    assert [type(it[name].component) for name in ("numbers", "x", "sink")] == [FixedSpout, Split, Again]
    assert (it["x"].outputs["default"].fields, it["again"].outputs["default"].fields) == (("word",), ("word", "more"))
    assert it["split"].outputs["other"].fields == ("word", "place")


# ---- what users see ----


class Raises(MoodyCount):
    def execute(self, tup: Any, collector: Any) -> None:
        try:
            super().execute(tup, collector)
        except FailedTuple as error:
            raise ValueError from error


@pytest.mark.parametrize("count", [Count, CountBatch, MoodyCount, Raises])
@pytest.mark.parametrize(("split", "custom"), [(Split, True), (SplitBatch, False), (SplitItself, False)])
def test_records_count_once_and_nobody_sees_an_identity(split: Any, count: Any, custom: bool) -> None:
    it, config = topology(split(), count(), custom=custom), Config(on_error="fail")
    assert state_after(it, config=config) == COUNTS
    widths = {name: {len(row) for row in rows} for name, rows in complete_topology(it, config=config).items()}
    assert widths == {"lines": {1}, "split": {1}, "split/other": {2}, "count": {2}, "again": {2}}


def test_a_source_of_a_test_gives_no_identity() -> None:
    assert complete_topology(topology(lines=[]), {"lines": LINES})["lines"] == LINES


class CountTicks(Count):
    component_config = {"tick_tuple_freq_secs": 1}  # noqa: RUF012

    def execute(self, tup: Any, collector: Any) -> None:
        key = "ticks" if tup.is_tick else tup["word"]
        self.state[key] = self.state.get(key, 0) + 1


def test_a_tick_is_committed() -> None:
    assert state_after(topology(count=CountTicks(), tasks=1), secs=3.5) == {**COUNTS, "ticks": 3}


def failed_of(count: Any, identities: list[int]) -> list[int]:
    """The rows that "count" fails of a batch with these identities."""
    it, told = topology(count=count, tasks=1, lines=[]), mock.Mock(emitter=SimpleNamespace(component="count", task=2))
    source = TupleSource("split", 5, "default", it["split"].outputs["default"])
    batch = ColumnBatch(Columns(([f"w{identity}" for identity in identities], identities), len(identities)), source)
    with SimulatedCluster(it) as cluster:
        {component: user for component, _, user in cluster.core(0).users()}["count"].execute_batch(batch, told)
    return [call.args[0] for call in told.fail.call_args_list]


def test_a_long_batch_of_failed_records_fails_them_all() -> None:
    assert failed_of(MoodyCount(), list(range(1200))) == list(range(1200))


class CountAndFail(CountBatch):
    """Fails the first row, and emits for it as well."""

    def execute_batch(self, batch: Any, collector: Any) -> None:
        super().execute_batch(batch, collector)
        collector.fail(0, "first")


@pytest.mark.parametrize(
    ("identities", "expected"), [([1, 2, 3], [0]), ([1, 1], [0, 1]), ([2, 1, 2], [0, 2]), ([2, 2, 1, 3], [0, 1])]
)
def test_a_batch_bolt_may_fail_a_row(identities: list[int], expected: list[int]) -> None:
    assert failed_of(CountAndFail(), identities) == expected


def test_a_spout_may_emit_to_a_stream_without_state_first() -> None:
    streams = {"other": [("a",)] * 3, "default": [("a",)] * 3}
    lines = FixedSpout(dict.fromkeys(streams, ("word",)), streams)
    builder = wired(lines=(lines, 1), sink=(Again(), 1, "global lines/other"), count=(Count(), 1, "global lines"))
    assert state_after(builder.build(), config=Config(max_spout_pending=1)) == {"a": 3}


class Emits(BasicBolt):
    outputs = ("word",)

    def __init__(self, *values: Any) -> None:
        self.values = values

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(self.values)


class EmitsFromState(Emits, StatefulBolt): ...


@pytest.mark.parametrize(("made", "named"), [
    ({"split": Emits("b", 2)}, r"split\[\d\] .*'default' emitted 2 values \('b', 2\), .* fields are \(word\)"),
    ({"lines": [("b", 2)]}, r"lines\[\d\] .*'default' emitted 2 values \('b', 2\), .* fields are \(text\)"),
    ({"count": EmitsFromState()}, r"count\[\d\] .*'default' emitted 0 values \(\), .* fields are \(word\)"),
    ({"count": EmitsFromState(lambda: None)}, r"'default' field 'word' is <.* cannot be stored: .*; allowed: "),
])
def test_a_wrong_emit_is_told_by_the_fields_that_were_declared(made: Any, named: str) -> None:
    with pytest.raises(TaskCrashed, match=named):
        complete_topology(topology(**made))


class Based(Count):
    """Counts each word from a hundred up, and fails all of the first batch."""

    def prepare(self, conf: Any, context: Any) -> None:
        self.state["base"], self.failed = 100, False

    def execute(self, tup: Any, collector: Any) -> None:
        word, was = tup["word"], self.failed
        self.failed = True
        if not was:
            raise FailedTuple("the first one")
        self.state[word] = self.state.get(word, self.state["base"]) + 1


def test_what_prepare_has_set_stays_when_the_first_tuple_fails() -> None:
    assert state_after(topology(count=Based(), again=False), secs=5) == {
        "base": 100, **{word: 100 + count for word, count in COUNTS.items()}
    }


# ---- whose state it is ----


def test_state_is_taken_over_by_the_same_topology_or_when_all_is_settled(tmp_path: Path) -> None:
    def between(builder: TopologyBuilder) -> None:
        builder.set_bolt("x", Split()).global_grouping("lines")
        builder.set_bolt("y", Count()).global_grouping("x")

    root = str(tmp_path / "root")
    for changed in ({}, {}, {"more": between}, {"again": False}, {"tasks": 3}, {"tasks": 1, "again": False}):
        assert state_after(topology(**changed), root) == COUNTS
    for number, changed in enumerate(({"more": between}, {"again": False})):
        other = str(tmp_path / str(number))
        with SimulatedCluster(topology(), state_root=other) as cluster:
            cluster.run_until(lambda its=cluster: any(its.user("count", at).state for at in (0, 1)))
            os.rename(Path(other, "lines-shared"), Path(other, "gone"))
        with pytest.raises(TaskCrashed, match=r"has absorbed \d+ tuples? that .* under way, and the topology"):
            state_after(topology(**changed), other)


def test_another_process_is_refused_until_the_first_one_closes(tmp_path: Path) -> None:
    program = "import sys\nfrom squall.engine.state.task_store import TaskStore\nTaskStore(sys.argv[1], 'count[1]')"
    elsewhere = [sys.executable, "-c", program, str(tmp_path)]
    store = TaskStore(str(tmp_path), "count[1]")
    refused = subprocess.run(elsewhere, capture_output=True, text=True, check=False)
    store.close()
    assert re.search(r"ClusterError: .*the state of count\[1\], is open in another process", refused.stderr)
    subprocess.run(elsewhere, check=True)


@functools.cache
def stored() -> bytes:
    with tempfile.TemporaryDirectory() as root:
        state_after(topology(tasks=1), root)
        return Path(root, "count-0", STORE_FILE).read_bytes()


@settings(max_examples=20, phases=[Phase.generate])
@given(st.integers(0, 999), st.sampled_from(["anywhere", "in a pickle", "cut"]), st.binary(min_size=1, max_size=200))
def test_a_damaged_file_is_told_with_its_name_or_does_no_harm(place: int, how: str, damage: bytes) -> None:
    content = stored()
    pickles = [match.start() for match in re.finditer(b"\x80\x05", content)]
    at = pickles[place % len(pickles)] if how == "in a pickle" else place * len(content) // 1000
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "count-0", STORE_FILE)
        path.parent.mkdir()
        path.write_bytes(content[:at] + (b"" if how == "cut" else damage + content[at + len(damage) :]))
        try:
            state_after(topology(tasks=1, lines=[]), root)
        except (TaskCrashed, ClusterError) as error:
            told = error.__cause__ or error
            assert isinstance(told, ClusterError)
            assert str(path) in str(told)
