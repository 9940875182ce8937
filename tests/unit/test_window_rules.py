"""What each window holds, against a plain model of the rules; when it is complete, and what is late."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from squall import (
    BasicCollector,
    Config,
    Spout,
    SpoutCollector,
    Topology,
    TopologyContext,
    Tuple,
    Window,
    WindowedBolt,
    bolt,
    connect,
)
from squall.engine.state.records.floors import Settled
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.records.record_store import Reading, TaskState
from squall.engine.state.windowing.event_time import END, EventTime
from squall.testing import FeederSpout, SimulatedCluster, complete_topology
from squall.testing.spouts import wait_for
from tests.unit.rig import Does
from tests.unit.test_windows import Shows, windows_of
from tests.unit.wired import wired

Event = tuple[str, float, int]
SECOND = 1_000_000_000


class Sums(WindowedBolt):
    """Folds, and tells what it has made and nothing else."""

    outputs = ("key", "start", "end", "sum")

    def fold(self, so_far: Any, tup: Tuple) -> Any:
        return (so_far or 0) + tup["n"]

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        assert window.get() == window.new() == window.expired() == []
        collector.emit((window.key, window.start, window.end, window.value))


def events_of(rng: random.Random) -> list[Event]:
    """Times are multiples of 0.25, in disorder and with gaps."""
    return [(rng.choice("ab"), rng.randrange(-40, 80) / 4 * rng.choice([1, 3]), n) for n in range(rng.randrange(1, 40))]


def by_key(events: Sequence[Event]) -> dict[str, list[Event]]:
    found = defaultdict(list)
    for event in events:
        found[event[0]].append(event)
    return found


def expected_by_time(events: Sequence[Event], length: float, slide: float) -> dict[Any, tuple[set[int], ...]]:
    """(key, start, end) -> numbers that are there, new and expired."""
    found = {}
    for key, its in by_key(events).items():
        ends = {(at // slide + step) * slide for _, at, _ in its for step in range(1, round(length / slide) + 1)}
        before: tuple[float, set[int]] | None = None
        for end in sorted(ends):
            inside = {n for _, at, n in its if end - length <= at < end}
            if not inside:
                continue
            shared = before is not None and before[1] & inside
            new = inside - before[1] if before is not None else inside
            found[key, end - length, end] = inside, new, before[1] - inside if before is not None and shared else set()
            before = end, inside
    return found


@pytest.mark.parametrize(("length", "slide"), [(2, 2), (2, 1), (3, 0.5), (1, 0.25), (10, 5)])
def test_windows_by_time_hold_what_is_from_their_start_to_before_their_end(
    length: float, slide: float, seed: int
) -> None:
    for number in range(5):
        events = events_of(random.Random(seed + number))
        made = [
            bolt_.with_sliding_window(secs=length, slide_secs=slide).with_timestamp_field("at").with_key("k")
            for bolt_ in (Shows(), Sums())
        ]
        shown, summed = [windows_of(bolt_, events)["bolt"] for bolt_ in made]
        expected = expected_by_time(events, length, slide)
        assert {row[:3]: tuple(map(set, row[3:])) for row in shown} == expected
        assert len(shown) == len(expected), "each window once, and no empty one"
        assert {row[:3]: row[3] for row in summed} == {window: sum(its[0]) for window, its in expected.items()}


@pytest.mark.parametrize(("length", "slide"), [(1, 1), (3, 3), (4, 2), (5, 2), (3, None)])
def test_windows_by_count_hold_the_last_tuples_each_slide(length: int, slide: int | None, seed: int) -> None:
    """By default with each tuple. At the end of a finite input, one more holds what no window had."""
    rng = random.Random(seed)
    events = [(rng.choice("ab"), 0.0, n) for n in range(rng.randrange(1, 40))]
    made = Shows().with_sliding_window(count=length, slide_count=slide).with_key("k")
    shown, step = windows_of(made, events)["bolt"], slide or 1
    for key, its in by_key(events).items():
        numbers = [n for _, _, n in its]
        ends = range(step, len(numbers) + step, step)
        expected = [
            (end, numbers[max(0, end - length) : end], numbers[end - step : end],
             numbers[max(0, end - step - length) : max(0, end - length)] if length > step else [])
            for end in ends
        ]
        assert [row[2:] for row in shown if row[0] == key] == expected


def test_sessions_end_by_a_gap_in_whatever_order_tuples_come(seed: int) -> None:
    just_apart = [("c", at, 100 + n) for n, at in enumerate((0.0, 1.5, 10.0, 8.5, 7.25))]
    for number in range(5):
        events = [*events_of(random.Random(seed + number)), *just_apart]
        made = Shows().with_session_window(gap_secs=1.5).with_timestamp_field("at").with_key("k")
        expected = []
        for key, its in by_key(events).items():
            for each in sorted(its, key=lambda event: event[1]):
                if not expected or expected[-1][0] != key or each[1] - expected[-1][2] >= 1.5:
                    expected.append([key, each[1], each[1], set()])
                expected[-1][2] = each[1]
                expected[-1][3].add(each[2])
        shown = windows_of(made, events)["bolt"]
        assert sorted((row[0], row[1], row[2] - 1.5, sorted(row[3])) for row in shown) == sorted(
            (key, start, last, sorted(numbers)) for key, start, last, numbers in expected
        )


# ---- what is late ----


class Phases(Spout):
    """Emits what follows when what it has emitted is acked, and known to be so."""

    outputs = ("k", "at", "n")

    def __init__(self, *phases: list[Any]) -> None:
        self.phases = list(phases)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.now_ns, self.id, self.open_ids, self.quiet_ns = collector, context.now_ns, 0, set[int](), 0

    def next_tuple(self) -> None:
        if not self.phases or self.open_ids or self.now_ns() < self.quiet_ns + SECOND // 2:
            return
        self.quiet_ns = self.now_ns()
        for values in self.phases.pop(0):
            self.id += 1
            self.open_ids.add(self.id)
            self.collector.emit(values, message_id=self.id)

    def ack(self, message_id: Any) -> None:
        self.open_ids.discard(message_id)
        self.quiet_ns = self.now_ns()

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.phases and not self.open_ids


def windowed(secs: float, lag_secs: float) -> Shows:
    made = Shows().with_tumbling_window(secs=secs).with_timestamp_field("at").with_lag(secs=lag_secs)
    return made.with_late_stream("late")


def counting(windows: Shows, *holding: str, **sources: Any) -> Topology:
    """Windows of what sources emit; `holding`: the sources with a bolt behind that holds tuples."""
    inputs = {name: f"after-{name}" if name in holding else name for name in sources}
    return wired(
        **{name: (source, 1) for name, source in sources.items()},
        **{after: (Does(holds, FIELDS), 1, f"global {name}") for name, after in inputs.items() if after != name},
        counts=(windows, 1, *(f"global {name}" for name in inputs.values())),
        late=(bolt(lambda tup: None), 1, "global counts/late"),
    ).build()


def run_phases(idle_secs: float = 60, **spouts: Phases) -> tuple[list[Any], list[Any]]:
    """(start, numbers) of each window of ten seconds with a lag of five, and the tuples on the late stream."""
    found = complete_topology(counting(windowed(10, 5).with_idle_timeout(secs=idle_secs), **spouts))
    return [(row[1], row[3]) for row in found["counts"]], found["counts/late"]


def test_a_tuple_is_late_below_the_newest_time_less_the_lag() -> None:
    """At that time it is not."""
    events = [("a", 10, 0), ("a", 20, 1)], [("a", 14.9, 2), ("a", 15, 3)], [("a", 30, 4)]
    assert run_phases(events=Phases(*events)) == ([(10, [0, 3]), (20, [1]), (30, [4])], [("a", 14.9, 2)])


def test_a_source_without_open_messages_holds_up_time_until_the_idle_timeout() -> None:
    """Then what another one has left behind is late."""
    for idle_secs, late in ((60, []), (0.8, [("a", 50, 5)])):
        fast = Phases(*[[("a", 100 + n, n)] for n in range(5)], [("a", 50, 5)])
        endless = Phases([("a", 10, 10)], *[[]] * 12, [("a", 100, 11)])
        assert run_phases(idle_secs, fast=fast, endless=endless)[1] == late


class Source:
    """A spout of one task that reads some partitions, each from 0 on."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.settled = {partition: Settled(Ranges()) for partition in partitions}
        self.readings = {partition: [Reading(-1, False)] for partition in partitions}
        self.tasks = [TaskState("busy", True)]
        self.ended = False


def test_the_watermark_is_the_least_of_what_is_settled_and_never_falls(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        sources = [Source([0, 1]), Source([2])]
        lag = rng.randrange(5)
        time, sent = EventTime(lag, None, {}), defaultdict[int, list[int]](list)
        before, floors = -END, [0, 0, 0]
        for now in range(60):
            partition = rng.randrange(3)
            if rng.random() < 0.6:
                sent[partition].append(rng.randrange(100))
                time.saw(partition, len(sent[partition]) - 1, sent[partition][-1])
            else:
                floors[partition] = rng.randint(floors[partition], len(sent[partition]))
            if rng.random() < 0.1:
                time = EventTime(lag, None, time.to_keep())
            for source in sources:
                for number in source.settled:
                    ranges = Ranges([(0, floors[number])] if floors[number] else [])
                    source.settled[number] = Settled(ranges, newest=len(sent[number]) - 1)
                time.settle(source.settled)
            settled = [sent[number][: floors[number]] for number in range(3)]
            watermark = time.look(sources, time.heard(), now)
            assert watermark >= before
            if all(settled):
                # No record that is not settled yet can hold it back, and none is counted before it is.
                assert watermark <= max(before, min(map(max, settled)) - lag)
            else:
                assert watermark == before
            before = watermark
        for source in sources:
            source.ended = True
        assert time.look(sources, {}, 60) == END


@pytest.mark.parametrize(("reading", "settled", "idle_secs", "held_secs", "before", "after"), [
    (Reading(-1, False), [(0, 1), (2, 3)], None, 60, 10, 30),
    (Reading(-1, False, 1), [(0, 1), (2, 3)], None, 60, 10, 10),
    (Reading(-1, False), [(0, 3)], 7, 7, 30, 99),
    (Reading(-1, False, 1), [(0, 1)], 7, 7, 10, 10),
], ids=["a record that nobody has open", "one that a task has open", "idle", "open and idle"])
def test_a_partition_holds_up_time_for_so_long(
    reading: Reading, settled: list[Any], idle_secs: int | None, held_secs: int, before: int, after: int
) -> None:
    """A record that nobody has open: its task died after it was acked, and before that was told. It comes no more."""
    source, time = Source([0, 1]), EventTime(0, idle_secs and idle_secs * SECOND, {})
    for partition, number, at in ((0, 0, 10), (0, 1, 20), (0, 2, 30), (1, 0, 99)):
        time.saw(partition, number, at)
    source.settled = {0: Settled(Ranges(settled), newest=2), 1: Settled(Ranges([(0, 1)]), newest=0)}
    source.readings = {0: [reading], 1: [reading._replace(open=-1)]}

    def watermark(now_secs: int) -> int:
        time.look([source], time.heard(), now_secs * SECOND)
        time.settle(source.settled)
        return time.look([source], time.heard(), now_secs * SECOND)

    assert watermark(0) == watermark(held_secs - 1) == before
    assert watermark(held_secs) == after


# ---- time of the clock ----


def test_windows_of_the_clock_are_executed_when_their_time_has_passed() -> None:
    """Though nothing comes any more, and the input has not ended."""
    feeder = FeederSpout(("n",))
    builder = wired(events=(feeder, 1), bolt=(Shows().with_tumbling_window(secs=0.25), 1, "global events"))
    with SimulatedCluster(builder.build()) as cluster:
        feeder.feed((7,))
        cluster.run_until(lambda: cluster.emitted["bolt"], 10)
        [(_, start, end, *numbers)] = cluster.emitted["bolt"]
    assert (end - start, start % 0.25, numbers) == (0.25, 0, [[7], [7], []])


# ---- time waits for each partition of each source, and for what is under way, however long it takes ----

FIELDS = ("at", "n")
LAG_SECS, WINDOW_SECS = 30, 60


def numbers_by_start(rows: list[tuple[float, int]]) -> dict[float, list[int]]:
    found: dict[float, list[int]] = {}
    for at, n in rows:
        found.setdefault(at // WINDOW_SECS * WINDOW_SECS, []).append(n)
    return {start: sorted(numbers) for start, numbers in found.items()}


def results_of(cluster: SimulatedCluster) -> dict[float, list[int]]:
    """By the windows' starts. Nothing was late, and no window came twice."""
    assert [name for name, rows in cluster.emitted.items() if name.endswith("/late") and rows] == []
    rows = [(start, sorted(numbers)) for _, start, _, numbers, *_ in cluster.emitted["counts"]]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def go(cluster: SimulatedCluster, until: Callable[[], bool]) -> None:
    """Let time pass while tuples flow."""

    def passed() -> bool:
        cluster.step()
        cluster.clock.advance_ns(20_000_000)
        return until()

    wait_for("the condition", passed)


GO_ON = threading.Event()


class Stuck(connect.Source):
    """Yields a record, and then sits in a call until it may go on."""

    outputs = FIELDS

    def read_from(self, position: int | None) -> Iterator[Any]:
        yield [(1, (1.0, 1))]
        GO_ON.wait(60)
        yield [(number, (float(number), number)) for number in range(2, 300)]


def holds(bolt: Does, tup: Tuple) -> None:
    """Hold number 1 until another comes."""
    bolt.kept.append(tup)
    if tup["n"] != 1:
        for each in bolt.kept:
            bolt.collector.emit(each.values, anchors=each)
            bolt.collector.ack(each)
        bolt.kept.clear()


@pytest.mark.parametrize("is_held", [False, True])
def test_no_record_of_a_source_that_sat_in_a_call_is_late(is_held: bool) -> None:
    GO_ON.clear()
    other = FeederSpout(FIELDS)
    topology = counting(windowed(WINDOW_SECS, LAG_SECS), "stuck" * is_held, stuck=Stuck(), other=other)
    with SimulatedCluster(topology, Config(message_timeout_secs=3600)) as cluster:
        go(cluster, lambda: len(cluster.emitted["stuck"]) == 1)
        for second in range(0, 300, 10):
            other.feed((second, 1000 + second))
            cluster.advance(1)
        assert cluster.emitted["counts"] == []
        GO_ON.set()
        other.finish()
        go(cluster, lambda: cluster.drained)
        rows = [(second, 1000 + second) for second in range(0, 300, 10)]
        assert results_of(cluster) == numbers_by_start([*rows, *((number, number) for number in range(1, 300))])


def test_sources_that_all_have_nothing_more_leave_no_window_open_but_the_newest() -> None:
    early, late = FeederSpout(FIELDS), FeederSpout(FIELDS)
    topology = counting(windowed(1, 0.25), early=early, other=late)
    with SimulatedCluster(topology) as cluster:
        for source, row in ((early, (0.5, 0)), (late, (8.5, 1)), (late, (99.5, 2))):
            source.feed(row)
        cluster.advance(20)
        assert results_of(cluster) == {0.0: [0], 8.0: [1]}


@pytest.mark.parametrize("tasks", [1, 3])
def test_windows_of_keys_that_come_no_more_are_executed_while_the_source_goes_on(tasks: int) -> None:
    """Time reaches a task that gets no tuple."""
    source = FeederSpout(("key", *FIELDS))
    windows = Shows().with_tumbling_window(secs=1).with_key("key").with_timestamp_field("at")
    builder = wired(events=(source, 1), windows=(windows, tasks, "fields events key"))
    with SimulatedCluster(builder.build()) as cluster:
        for key in "abcdefghij":
            source.feed((key, 0.5, 0))
        cluster.settle()
        source.feed(("a", 1000.0, 1))
        cluster.run_until(lambda: len(cluster.emitted["windows"]) == 10, 2)
        assert {row[0] for row in cluster.emitted["windows"]} == set("abcdefghij")


def test_a_date_in_the_future_makes_nothing_late_and_stays_in_its_window() -> None:
    now, month = time.time() // WINDOW_SECS * WINDOW_SECS - 10_000, 30 * 86_400
    rows = [(now + 5.0 * n if n != 200 else now + month, n) for n in range(400)]
    source = FeederSpout(FIELDS)
    topology = counting(windowed(WINDOW_SECS, LAG_SECS), events=source)
    with SimulatedCluster(topology) as cluster:
        for n, row in enumerate(rows):
            source.feed(row)
            if n % 20 == 0:
                cluster.advance(0.5)
        source.finish()
        cluster.run()
        assert results_of(cluster) == numbers_by_start(rows)
