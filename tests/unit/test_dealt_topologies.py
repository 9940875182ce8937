"""Topologies that go on with other numbers of tasks, killed in the middle: every record counts once, in its window."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    Config,
    ExactSink,
    JoinBolt,
    StatefulBolt,
    Topology,
    Unavailable,
    Window,
    WindowedBolt,
)
from squall.engine.core.executor import TaskCrashed
from squall.engine.foreign.stable_hash import stable_hash
from squall.engine.state.reading import read_component
from squall.testing import FixedSpout, SimulatedCluster
from tests.unit.wired import wired

EVENTS = [(f"k{n * 7 % 11}", float(n // 3), n) for n in range(150)]
OTHERS = [(f"k{n * 5 % 13}", float(n // 2), n) for n in range(100)]


class Count(StatefulBolt):
    outputs = ()

    def execute(self, tup: Any, collector: Any) -> None:
        self.state[tup.values] = self.state.get(tup.values, 0) + 1


class Shows(WindowedBolt):
    outputs = ("key", "start", "numbers")

    def execute_window(self, window: Window, collector: Any) -> None:
        collector.emit((window.key, int(window.start), tuple(sorted(tup["n"] for tup in window.get()))))


class Folds(Shows):
    def fold(self, so_far: Any, tup: Any) -> Any:
        return (so_far or ()) + (tup["n"],)

    def merge(self, one: Any, other: Any) -> Any:
        return one + other

    def execute_window(self, window: Window, collector: Any) -> None:
        collector.emit((window.key, int(window.start), tuple(sorted(window.value))))


def events(records: Any = EVENTS) -> tuple[FixedSpout, int]:
    return FixedSpout(("k", "at", "n"), records), 1


def counted(bolt: WindowedBolt, tasks: int, joins: bool = False) -> Topology:
    """What windows emit, counted."""
    others: dict[str, Any] = {"others": (FixedSpout(("k", "at", "m"), OTHERS), 1)} if joins else {}
    return wired(
        events=events(), **others, windows=(bolt, tasks, "fields events k", *(f"fields {name} k" for name in others)),
        count=(Count(), tasks, f"fields windows {' '.join(bolt.outputs)}"),
    ).build()


def keyed(bolt: Any, tasks: int) -> Topology:
    return counted(bolt.with_key("k").with_timestamp_field("at"), tasks)


def _has_acked(cluster: SimulatedCluster) -> bool:
    return cluster.report().acked > 35


def lives(make: Any, root: Path, numbers: list[int]) -> None:
    """Lives with these numbers of tasks, one after the other; each but the last is killed in the middle."""
    config = Config(max_spout_pending=8, workers=2)
    for life, tasks in enumerate(numbers):
        with SimulatedCluster(make(tasks), config, state_root=root) as cluster:
            if life < len(numbers) - 1:
                cluster.run_until(partial(_has_acked, cluster))
                for worker in range(len(cluster.workers)):
                    cluster.kill(worker)
            else:
                cluster.run()


def assert_as_one_task(make: Any, root: Path, numbers: list[int]) -> None:
    """What is counted with these numbers of tasks is what one task counts that nobody kills."""
    lives(make, root / "several", numbers)
    lives(make, root / "one", [1])
    counted = read_component(root / "several", "count")
    assert counted == read_component(root / "one", "count") != {}


@pytest.mark.parametrize("numbers", [[2, 3], [3, 1, 4]])
@pytest.mark.parametrize(("kind", "declare"), [
    (Shows, lambda bolt: bolt.with_tumbling_window(secs=20)),
    (Folds, lambda bolt: bolt.with_session_window(gap_secs=4)),
    (Shows, lambda bolt: bolt.with_sliding_window(secs=30, slide_secs=10)),
])
def test_windows_by_key_are_complete_with_other_numbers_of_tasks(
    kind: Any, declare: Any, numbers: list[int], tmp_path: Path
) -> None:
    assert_as_one_task(lambda tasks: keyed(declare(kind()), tasks), tmp_path, numbers)


def test_joins_are_complete_with_other_numbers_of_tasks(tmp_path: Path) -> None:
    def make(tasks: int) -> Topology:
        join = JoinBolt("events", "k").join("others", "k", prior="events").select("events:k", "n", "m")
        return counted(join.with_tumbling_window(secs=20).with_timestamp_field("at"), tasks, joins=True)

    assert_as_one_task(make, tmp_path, [3, 1, 2])


def test_windows_without_key_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    def make(tasks: int) -> Topology:
        return counted(Shows().with_session_window(gap_secs=1000).with_timestamp_field("at"), tasks)

    with pytest.raises(TaskCrashed, match="cannot be dealt to 3: its open windows have no key and are sessions, by"):
        lives(make, tmp_path, [2, 3])
    lives(make, tmp_path, [2])


class Dict(ExactSink):
    """Writes into a dict of the class, by store and number; until it is there, rows are in the store only."""

    written: ClassVar[dict[Any, list[int]]] = {}
    is_there: ClassVar[bool] = True

    def commit(self, number: int, rows: Any, position: Any) -> None:
        if not self.is_there and number == 1:
            raise Unavailable("not yet")
        self.written[self.store_id, number] = [tup["n"] for tup in rows]


MOVES = next(key for key in range(99) if stable_hash(key) % 2 == 1 and stable_hash(key) % 3 == 0)
"""The task that has its rows gets none any more where two tasks become three."""


@pytest.mark.parametrize(("numbers", "records"), [
    ([3, 1], EVENTS), ([4, 2, 3, 1], EVENTS), ([2, 3], [(MOVES, 0.0, n) for n in range(20)]),
])
def test_sinks_write_once_with_other_numbers_of_tasks(
    numbers: list[int], records: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(tasks: int) -> Topology:
        return wired(events=events(records), sink=(Dict(), tasks, "fields events k")).build()

    monkeypatch.setattr(Dict, "written", {})
    monkeypatch.setattr(Dict, "is_there", False)
    with SimulatedCluster(make(numbers[0]), Config(max_spout_pending=40), state_root=tmp_path) as cluster:
        holders = min(numbers[0], len({record[0] for record in records}))
        cluster.run_until(lambda: len(cluster.errors) >= holders)
    assert not Dict.written
    monkeypatch.setattr(Dict, "is_there", True)
    lives(make, tmp_path, numbers[1:])
    assert sorted(n for rows in Dict.written.values() for n in rows) == list(range(len(records)))


class Total(StatefulBolt):
    outputs = ()

    def execute(self, tup: Any, collector: Any) -> None:
        key = "total" if tup["n"] == 149 else tup["k"]
        self.state[key] = self.state.get(key, 0) + 1


def test_a_key_that_is_not_what_the_input_is_grouped_by_fails_its_own_tuple_until_one_task_is_back(
    tmp_path: Path,
) -> None:
    """One task has every key, so nothing tells before a tuple comes."""
    def make(tasks: int) -> Topology:
        return wired(events=events(), count=(Total(), tasks, "fields events k")).build()

    with SimulatedCluster(make(1), Config(max_spout_pending=8), state_root=tmp_path) as cluster:
        cluster.run_until(partial(_has_acked, cluster))
    with SimulatedCluster(make(3), state_root=tmp_path) as cluster:
        cluster.run_until(lambda: bool(cluster.report().acked == 149 and cluster.failed))
        [(_, _, failure)] = cluster.failed
    assert "was dealt by key, once from 1 task, and state['total'] is set by" in failure.error
    lives(make, tmp_path, [1])
    assert read_component(tmp_path, "count") == Counter(k for k, _, _ in EVENTS[:-1]) | {"total": 1}


@pytest.mark.parametrize("drops", [False, True])
def test_windows_that_are_declared_otherwise_are_refused_or_dropped(drops: bool, tmp_path: Path) -> None:
    def make(gap: float) -> Topology:
        return keyed(Shows().with_session_window(gap_secs=gap), 2)

    with SimulatedCluster(make(1200), Config(max_spout_pending=8), state_root=tmp_path) as cluster:
        cluster.run_until(partial(_has_acked, cluster))
    config = Config(drop_windows=drops)
    if not drops:
        with pytest.raises(TaskCrashed, match="gap 30 min; 11 open windows were declared with session gap 20 min"):
            SimulatedCluster(make(1800), config, state_root=tmp_path)
        return
    with SimulatedCluster(make(1800), config, state_root=tmp_path) as cluster:
        cluster.run()
    rest = sorted(n for _, _, numbers in read_component(tmp_path, "count") for n in numbers)
    assert rest == list(range(rest[0], len(EVENTS)))
    assert rest[0] > 35
    with SimulatedCluster(make(2400), state_root=tmp_path) as cluster:
        cluster.settle()  # no window is open
