"""Batches of columns from spout to bolt: each row is tracked as if it had been emitted alone."""

from __future__ import annotations

import itertools
import pickle
import random
from array import array
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from squall.engine.api.component import CustomGrouping
from squall.engine.api.failure import EXCEPTION, FAILED
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.executor import TaskCrashed
from squall.engine.errors import ComponentError
from tests.unit.batch_rig import BatchFeeder, DoesBatch, fails, nothing, passes
from tests.unit.lab import batch_of
from tests.unit.rig import GROUPINGS as BY_ROW
from tests.unit.rig import STREAMS, Does, Feeder, Rig, acks, chain, keeps, streams_rig
from tests.unit.wired import wired


def fed(*bolts: Any, outputs: Any = ("value",), **settings: Any) -> tuple[Rig, BatchFeeder]:
    """A batch spout and bolts in a chain."""
    rig = Rig(chain(BatchFeeder(outputs), *bolts), **settings)
    return rig, rig.user("spout")


# ---- which row came of which ----


@pytest.mark.parametrize("how", ["counts", "parents"])
def test_rows_belong_to_the_input_row_they_were_made_from(how: str) -> None:
    """The sink fails one of them: that fails its message and no other."""

    def makes(bolt: Any, batch: Any, collector: Any) -> None:
        counts = [int(value) for value in batch["value"]]
        parents = [row for row, count in enumerate(counts) for _ in range(count)]
        rows = [f"{row}.{number}" for row, count in enumerate(counts) for number in range(count)]
        if how == "parents":
            rows, parents = rows[::-1], parents[::-1]
        collector.emit_batch((rows,), **{how: counts if how == "counts" else parents})

    for wrong, failed in (("0.1", 10), ("2.0", 12), ("3.2", 13)):
        rig, spout = fed(DoesBatch(makes, ("value",)), DoesBatch(fails(wrong), ("value",)), DoesBatch(nothing))
        spout.feed(["2", "0", "1", "3"], ids=[10, 11, 12, 13])
        rig.settle()
        assert spout.reasons == {failed: FAILED}
        assert sorted(spout.all_acked) == sorted({10, 11, 12, 13} - {failed})


# ---- groupings and streams ----


class ByValue(CustomGrouping):
    """To as many tasks as the value says, and to none."""

    def prepare(self, context: Any, source: str, stream: str, target_tasks: Any) -> None:
        self.targets = target_tasks

    def choose_tasks(self, source_task: int, values: Any) -> list[int]:
        return list(self.targets[: values[0] % 4])


GROUPINGS = {
    **BY_ROW,
    "two fields": lambda bolt, source: bolt.fields_grouping(source, "value", "name"),
    "custom": lambda bolt, source: bolt.custom_grouping(source, ByValue()),
}
VALUES = list(range(1500))
EXPECTED = {
    "global": [VALUES, [], []], "all": [VALUES] * 3,
    "custom": [[value for value in VALUES if value % 4 > index] for index in range(3)],
}
"""What each of three tasks gets, where the grouping alone decides it."""


def column_of(kind: str, values: list[int]) -> Any:
    if kind == "numpy":
        return pytest.importorskip("numpy").array(values)
    if kind in ("arrow", "chunked"):
        arrow = pytest.importorskip("pyarrow")
        return arrow.array(values) if kind == "arrow" else arrow.chunked_array([values[:100], values[100:]])
    return array("q", values) if kind == "array" else values if kind == "list" else tuple(values)


@pytest.mark.parametrize(("kind", "grouping"), [
    *(("list", grouping) for grouping in GROUPINGS),
    *itertools.product(("tuple", "array", "numpy", "arrow", "chunked"), ("shuffle", "fields", "all")),
])
def test_columns_of_every_kind_in_every_grouping(kind: str, grouping: str) -> None:
    builder, end, column = chain(BatchFeeder(("value", "name"))), Does(acks), column_of(kind, VALUES)
    GROUPINGS[grouping](builder.set_bolt("bolt", DoesBatch(passes, ("value", "name")), 3), "spout")
    builder.set_bolt("end", end).global_grouping("bolt")
    rig = Rig(builder)
    rig.user("spout").feed(column, [f"name {value}" for value in VALUES], ids=VALUES)
    rig.settle()
    assert all(type(value) is int and name == f"name {value}" for value, name in end.seen)
    got = [[value for value, _ in rig.user("bolt", index).own] for index in range(3)]
    assert sorted(value for value, _ in end.seen) == sorted(itertools.chain(*got))
    if grouping in EXPECTED:
        assert got == EXPECTED[grouping]
    else:
        assert sorted(itertools.chain(*got)) == VALUES
        assert grouping == "none" or all(got)
    assert {type(batch["value"]) for batch in rig.user("bolt").batches} == {list if kind == "tuple" else type(column)}
    assert sorted(rig.user("spout").all_acked) == VALUES


def test_a_key_without_a_hash_costs_its_own_message_only() -> None:
    class NoHash:
        def __hash__(self) -> int:
            raise ValueError("no hash today")

    rig = Rig(wired(spout=(BatchFeeder(), 1), bolt=(Does(acks), 2, "fields spout value")))
    rig.user("spout").feed(["a", NoHash(), "b"], ids=[1, 2, 3])
    with pytest.raises(TaskCrashed, match="no hash today"):
        rig.settle()
    rig.core.tracking.charge()
    task = rig.spout_task
    assert 2 not in {tree[0] for tree in task.pending.trees.values()}
    assert task.collector.emitted == 2, "the third was not reached"


def test_acks_that_were_taken_count_though_the_failures_beside_them_were_not() -> None:
    rig, spout = fed(DoesBatch(lambda bolt, batch, collector: collector.fail(0)))
    spout.fail_batch = lambda *failed: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    spout.feed(["a", "b"], ids=[1, 2])
    with pytest.raises(TaskCrashed, match="in fail_batch"):
        rig.settle()
    assert rig.core.stats[rig.plan.tasks_of("spout")[0]].acked == 1


def test_streams_and_direct_streams() -> None:
    def sends(bolt: Any, batch: Any, collector: Any) -> None:
        values = list(batch["value"])
        collector.emit_batch((values,))
        collector.emit_batch((values, values), stream="pair")
        collector.emit_batch_direct(bolt.context.component_tasks("sink")[1], (values,), stream="to")

    rig = streams_rig(BatchFeeder(), DoesBatch(sends, STREAMS))
    rig.user("spout").feed(["x", "y"], ids=[1, 2])
    rig.settle()
    assert Counter(rig.user("sink").seen) == {("x",): 2, ("y",): 2, ("x", "x"): 1, ("y", "y"): 1}
    assert {("x",), ("y",)} <= {*rig.user("sink", 1).own}
    assert rig.user("spout").all_acked == [1, 2]


@pytest.mark.parametrize("feeder", [Feeder, BatchFeeder])
def test_rows_and_batches_of_one_spout_keep_their_order(seed: int, feeder: type[Feeder | BatchFeeder]) -> None:
    """Tracked or not, as a row, a short list or an array."""
    rng, numbers, tracked = random.Random(seed), iter(range(10_000)), []

    def speak(spout: Any, *rows: int) -> None:
        for _ in range(rng.randrange(10) if spout.queue else 0):
            column = [next(numbers) for _ in range(rng.randint(1, 9))]
            is_tracked, kind = rng.random() < 0.7, rng.choice(("rows", "list", "array"))
            tracked.extend(column if is_tracked else ())
            if kind != "rows":
                ids = column if is_tracked else None
                spout.collector.emit_batch((array("q", column) if kind == "array" else column,), message_ids=ids)
                continue
            for number in column:
                spout.collector.emit((number,), message_id=number if is_tracked else None)
        if spout.queue:
            spout.queue.popleft()

    both = type("Both", (feeder,), {"next_tuple": speak, "next_batch": speak})()
    sink = Does(acks)
    rig = Rig(chain(both, sink))
    for _ in range(20):
        rig.user("spout").feed()
    rig.settle()
    assert sink.seen == [(number,) for number in range(next(numbers))]
    acked = rig.user("spout").all_acked if feeder is BatchFeeder else rig.user("spout").acked
    assert sorted(acked) == tracked
    assert (rig.pending, rig.tracked) == (0, 0)


def test_intervals_of_arrow_can_be_sent_by_row_too() -> None:
    arrow = pytest.importorskip("pyarrow")
    spans = [arrow.MonthDayNano([1, 2, nanos]) for nanos in range(3)]
    rig, spout = fed(sink := Does(acks))
    spout.feed(arrow.array(spans), ids=[1, 2, 3])
    rig.settle()
    assert sink.seen == [(span,) for span in spans]
    assert pickle.loads(pickle.dumps(sink.seen)) == sink.seen


# ---- the batch ----


def test_a_batch_is_read_by_field() -> None:
    bolt = DoesBatch(nothing)
    rig, spout = fed(bolt, outputs=("value", "name"))
    spout.feed([1, 2], ["a", "b"], ids=[1, 2])
    rig.settle()
    [batch] = bolt.batches
    assert (list(batch["value"]), batch["name"], len(batch), batch.fields) == ([1, 2], ["a", "b"], 2, ("value", "name"))
    assert batch.to_rows() == [(1, "a"), (2, "b")]
    assert ("name" in batch, "x" in batch, batch.is_tick) == (True, False, False)
    assert (batch.source_component, batch.source_stream) == ("spout", "default")
    for wrong in ("x", 0):
        with pytest.raises(ComponentError, match=f"no field {wrong!r}; its fields are value, name"):
            batch[wrong]  # type: ignore[index]
    with pytest.raises(TypeError):
        iter(batch)  # type: ignore[call-overload]


def test_ticks_come_as_batches() -> None:
    ticks: list[Any] = []

    def counts(bolt: Any, batch: Any, collector: Any) -> None:
        if batch.is_tick:
            ticks.append(batch.to_rows())
            collector.emit_batch((["total"],))

    rig, _ = fed(DoesBatch(counts, ("value",)), end := Does(acks), tick_tuple_freq_secs=5)
    rig.advance(5)
    assert ticks == [[(5.0,)]]
    assert ("total",) in end.seen
    assert rig.core.stats[rig.plan.tasks_of("bolt-1")[0]].executed == 0


# ---- errors ----


def test_the_culprit_of_a_batch_is_found_alone_and_the_innocent_are_acked() -> None:
    def breaks(bolt: Any, batch: Any, collector: Any) -> None:
        if "poison" in batch["value"]:
            raise ValueError("broken")

    class Replays(BatchFeeder):
        def fail_batch(self, message_ids: list[Any], failures: list[Any]) -> None:
            super().fail_batch(message_ids, failures)
            self.feed([texts[message_id] for message_id in message_ids], ids=message_ids)

    texts = {number: "poison" if number == 5 else "fine" for number in range(12)}
    rig = Rig(chain(Replays(), DoesBatch(breaks)), on_error="fail", max_attempts=3)
    spout = rig.user("spout")
    spout.feed(list(texts.values()), ids=list(texts))
    rig.settle()
    assert {(failure.reason, failure.among) for failure in spout.failed[0][1]} == {(EXCEPTION, 12)}
    assert [error.partition(" (")[0] for _, _, error in rig.errors][:1] == ["ValueError: broken"]
    assert (rig.pending, rig.tracked) == (0, 0)
    assert sorted(spout.all_acked) == list(range(12))  # the poisonous one as a dead letter
    assert [(message_id, values) for _, _, message_id, values, _ in rig.dead_letters] == [(5, ("poison",))]


def test_a_mask_of_numpy_counts_and_its_numbers_name_the_rows_that_fail() -> None:
    numpy = pytest.importorskip("numpy")

    def keep_long(_: Any, batch: Any, collector: Any) -> None:
        values = numpy.array(batch["value"])
        mask = numpy.char.str_len(values) > 1
        collector.emit_batch((values[mask],), counts=mask)
        collector.emit_batch(([*values[mask]],), counts=mask.tolist())
        for row in numpy.flatnonzero(values == "x"):
            collector.fail(row, "an x")
        collector.fail([*numpy.flatnonzero(values == "y")], "a y")

    rig, spout = fed(DoesBatch(keep_long, ("value",)), DoesBatch(nothing))
    spout.feed(["aa", "b", "x", "y", "cc"], ids=[1, 2, 3, 4, 5])
    rig.settle()
    assert (sorted(spout.all_acked), set(spout.reasons)) == ([1, 2, 5], {3, 4})


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no column": (lambda c: c.emit_batch("abc"), "a tuple or list of columns for .value., not 'abc'"),
    "a text for a column": (lambda c: c.emit_batch(("abc",)), "field 'value': a value of type str is no column"),
    "lengths": (lambda c: c.emit_batch((["a"], ["b", "c"]), stream="pair"), "different lengths: a has 1, b has 2"),
    "task": (lambda c: c.emit_batch_direct(99, (["a"],), stream="to"), "cannot send to task 99"),
    "rows": (lambda c: c.emit_batch((["a"],)), "emitted 1 row for a batch of 2; say which row"),
    "counts and parents": (lambda c: c.emit_batch((["a"],), counts=[1, 0], parents=[0]), "got counts and parents"),
    "counts too few": (lambda c: c.emit_batch((["a"],), counts=[1]), "got 1 count; allowed: one from 0 up for each"),
    "counts' sum": (lambda c: c.emit_batch((["a"],), counts=[1, 1]), "emitted 1 row, but the counts add up to 2"),
    "parents too few": (lambda c: c.emit_batch((["a", "b"],), parents=[0]), "got 1 parent for 2 rows"),
    "parents too high": (lambda c: c.emit_batch((["a"],), parents=[2]), "from 2 to 2; allowed: 0 to 1"),
    "fail": (lambda c: c.fail(2), "failed row 2 of a batch of 2 rows; allowed: 0 to 1"),
    "not picklable": (lambda c: c.emit_batch(([lambda: 1, 2],)), "field 'value': a value of type function cannot be"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_an_error_at_once(name: str) -> None:
    call, says = WRONG[name]
    rig = streams_rig(BatchFeeder(), DoesBatch(lambda bolt, batch, collector: call(collector), STREAMS))
    rig.user("spout").feed(["x", "y"], ids=[1, 2])
    with pytest.raises(TaskCrashed, match=says):
        rig.settle()
    assert rig.user("sink").seen == []


@pytest.mark.parametrize(("ids", "says"), [
    ([1], "2 rows with 1 message id; allowed: an id for each row"), ([1, None], "2 rows with None among the ids"),
    (7, "got 7 as message ids"),
])
def test_message_ids_are_one_for_each_row(ids: Any, says: str) -> None:
    rig, spout = fed(DoesBatch(nothing))
    spout.feed(["a", "b"], ids=ids)
    with pytest.raises(TaskCrashed, match=says):
        rig.settle()


# ---- limits ----


def test_a_spout_is_asked_for_no_more_rows_than_may_be_open() -> None:
    rig, spout = fed(Does(keeps), max_spout_pending=7)
    spout.feed(list("abc"), ids=[1, 2, 3])
    rig.settle()
    assert spout.asked[0] == 7
    assert set(spout.asked[1:]) == {4}
    spout.feed(list("defg"), ids=[4, 5, 6, 7])
    rig.settle()
    before = len(spout.asked)
    rig.settle()
    assert len(spout.asked) == before
    bolt = rig.user("bolt-1")
    bolt.collector.ack(bolt.kept.pop())
    rig.settle()
    assert spout.asked[-1] == 1


class Bursts(BatchFeeder):
    """Emits all that was fed to it in one call."""

    def next_batch(self, rows: int) -> None:
        while self.queue:
            columns, named = self.queue.popleft()
            self.collector.emit_batch(columns, **named)


def test_short_batches_of_a_turn_reach_the_bolt_as_one() -> None:
    rig = Rig(chain(Bursts(("value",)), DoesBatch(fails("c"), ("value",)), DoesBatch(nothing)))
    spout = rig.user("spout")
    spout.feed(["a", "b"], ids=[1, 2])
    spout.feed(("c",), ids=(3,))
    spout.feed(["d", "e"], ids=range(4, 6))
    rig.settle()
    bolt = rig.user("bolt-1")
    assert [list(batch["value"]) for batch in bolt.batches] == [list("abcde")]
    assert sorted(spout.all_acked) == [1, 2, 4, 5]
    assert spout.reasons == {3: FAILED}


# ---- calls of a set length ----


@pytest.mark.parametrize("spouts", [1, 3])
def test_a_call_has_the_rows_that_were_set_or_those_that_came_in_time(spouts: int) -> None:
    calls: list[int] = []
    bolt = DoesBatch(lambda self, batch, collector: calls.append(len(batch)), outputs=())
    builder = wired(feed=(BatchFeeder(), spouts))
    builder.set_bolt("bolt", bolt).shuffle_grouping("feed").set_config(batch_rows=30, batch_wait_ms=20)
    rig = Rig(builder, threads=True)
    for index in range(spouts):
        rig.user("feed", index).feed(list(range(24)), ids=range(24))
    full, rest = divmod(24 * spouts, 30)
    for secs, called in ((0, [30] * full), (0.019, [30] * full), (0.002, [30] * full + [rest])):
        rig.clock.advance(secs)
        rig.settle()
        assert calls == called
    assert len(rig.user("feed").all_acked) == 24 * spouts  # all tasks write in one list


@pytest.mark.parametrize(("streams", "rows", "length", "count"), [("ab", 97, 10, 2000), ("a", 1201, 1202, 1210)])
def test_calls_of_a_set_length_take_turns_and_leave_nothing_behind(
    streams: str, rows: int, length: int, count: int
) -> None:
    """What was left of joined batches was joined again, for ever: batches of the other stream waited for the end of the
    first, and the worker ended by a RecursionError, because it told of each batch from within the next."""
    calls: list[tuple[str, int]] = []
    told: list[int] = []

    def note(self: DoesBatch, batch: Any, collector: Any) -> None:
        calls.append((batch.source_component, len(batch)))

    builder = TopologyBuilder()
    bolt = builder.set_bolt("bolt", DoesBatch(note)).set_config(batch_rows=rows)
    for name in streams:
        builder.set_spout(name, BatchFeeder())
        bolt.shuffle_grouping(name)
    rig = Rig(builder, threads=True)
    (executor,) = rig.core.bolts
    (task,) = executor.tasks
    for number in range(count):
        (source,) = rig.plan.tasks_of(streams[number % len(streams)])
        batch = batch_of([(number,)] * length, [(0, 0, length)], task.task, source)
        task.inbox.append((batch, partial(told.append, number)))
    while executor.run():
        assert len(told) <= sum(called for _, called in calls) // length
    assert sorted(told) == list(range(count))
    assert sum(called == rows for _, called in calls) >= len(calls) - 3
    alone = [len(list(group)) for _, group in itertools.groupby(source for source, _ in calls)]
    assert max(alone) <= 3 or len(streams) == 1
