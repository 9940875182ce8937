"""State that is dealt to another number of tasks: every key at its task, whatever is killed when, or refused."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.engine.api.context import TopologyContext
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.errors import ClusterError
from squall.engine.foreign.stable_hash import key_hash, stable_hash
from squall.engine.state.dealing import deal
from squall.engine.state.input_rows import Read
from squall.engine.state.reading import items_of, stores_of, task_of, tasks_of
from squall.engine.state.task_store import TaskStore, pack_value
from squall.engine.state.windowing.event_time import TIME_KEY
from squall.engine.state.windowing.windows import Declaration
from tests.effects import copy_of, dies_at, effects_of
from tests.unit.test_keyed_state import KEY

READS = [Read("words", "default", ("word", "n"), "fields", ("word",))]


def home(key: Any, tasks: int) -> int:
    value = key[0] if type(key) is tuple and len(key) == 1 else key
    return key_hash(value, stable_hash) % tasks


def store(
    root: Path, task: int, tasks: int, items: dict[Any, Any], results: Sequence[Any] = (), **meta: Any
) -> None:
    directory = root / f"count-{task}"
    directory.mkdir(parents=True)
    with opened(directory) as made, made.changing():
        packed = [(key, pack_value(key, value)) for key, value in items.items()]
        half = len(packed) // 2
        made.put(packed[:half], at=5)
        made.append(0, dict(packed[half:]))
        made.write("INSERT INTO absorbed VALUES (?, ?)", [(3, b"group of %d" % task)])
        made.write("INSERT INTO results (origin, number, content) VALUES (?, ?, ?)", results)
        for name, value in {"tasks": tasks, "shape": 7, **meta}.items():
            made.put_meta(name, value)


def stored(root: Path, keys: Any, tasks: int) -> dict[Any, int]:
    items = {key: number for number, key in enumerate(keys)}
    for task in range(tasks):
        store(root, task, tasks, {key: value for key, value in items.items() if home(key, tasks) == task})
    return items


def dealt(
    root: Path, tasks: int, index: int = 0, reads: Any = READS, declaration: Declaration | None = None,
    full: bool = False,
) -> int:
    plan = Plan([[ExecutorPlan("count", 1, tasks)]], ["here"])
    context = TopologyContext("t", "count", 1 + index, index, "here", 1, plan, str(root))
    return deal(context, reads, declaration, full=full)


def opened(directory: Path) -> closing[TaskStore]:
    return closing(TaskStore(str(directory), "count"))


def found(root: Path) -> dict[int, dict[Any, Any]]:
    return {task_of(path): dict(items_of(path)) for path in stores_of(root, "count")}


def expected(items: dict[Any, Any], tasks: int) -> dict[int, dict[Any, Any]]:
    return {task: {key: items[key] for key in items if home(key, tasks) == task} for task in range(tasks)}


@settings(deadline=None, max_examples=25)
@given(st.lists(KEY, max_size=20, unique=True), st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_each_key_is_at_its_task_however_often_state_is_dealt(keys: list[Any], numbers: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        items = stored(root, keys, 2)
        for tasks in [*numbers, 2]:
            dealt(root, tasks, index=tasks - 1)
            assert found(root) == expected(items, tasks)
            assert {tasks_of(path) for path in stores_of(root, "count")} == {tasks}
            assert {path.name for path in root.iterdir()} == {f"count-{task}" for task in range(tasks)}


def test_ages_go_along_and_each_task_knows_what_was_absorbed(tmp_path: Path) -> None:
    stored(tmp_path, "abcdef", 2)
    aged = sum(len(items) // 2 for items in found(tmp_path).values())
    dealt(tmp_path, 3)
    ages = []
    for path in stores_of(tmp_path, "count"):
        with opened(path.parent) as made:
            assert made.read("SELECT * FROM absorbed") == [(0, b"group of 0"), (1, b"group of 1")]
            assert (made.meta("shape"), made.meta("dealt")) == (7, 2)
            ages += [at for (at,) in made.read("SELECT at FROM state")]
    assert (ages.count(5), ages.count(None)) == (aged, 6 - aged)


def test_event_time_and_results_are_dealt(tmp_path: Path) -> None:
    declaration = Declaration("time", 10, 10, "at", ("word",), True)
    for task, (watermark, times, marks) in enumerate([
        (5, {1: 8, 2: 3}, {1: [(4, 9), (7, 20)]}), (6, {1: 6}, {1: [(5, 7)], 2: [(0, 4)]}), (-1, {}, {}),
    ]):
        time = {"watermark": watermark, "times": times, "marks": marks}
        store(tmp_path, task, 3, {TIME_KEY: time}, [(f"o{task}", 9, b"x")] * 2, windows=declaration.packed)
    dealt(tmp_path, 2, declaration=declaration)
    left = []
    for path in stores_of(tmp_path, "count"):
        assert dict(items_of(path)) == {TIME_KEY: {
            "watermark": 6, "times": {1: 8, 2: 3}, "marks": {1: [(4, 9), (5, 9), (7, 20)], 2: [(0, 4)]},
        }}
        with opened(path.parent) as made:
            left.append(made.read("SELECT place, origin, number FROM results"))
    assert left == [[(1, "o0", 9), (2, "o0", 9), (3, "o2", 9), (4, "o2", 9)], [(1, "o1", 9), (2, "o1", 9)]]


@pytest.mark.parametrize(("keys", "reads", "named"), [
    ({0: {"totals": 1}, 1: {"totals": 2}}, READS, r"task \d has state\['totals'\], which is not"),
    ({0: {"a": 1}}, [READS[0]._replace(grouping="shuffle", by=())], "it reads 'words' by shuffle grouping"),
    ({0: {"a": 1}}, [*READS, READS[0]._replace(component="x", grouping="all", by=())], "it reads 'x' by all grouping"),
])
def test_what_does_not_belong_to_a_task_is_refused_and_stays(
    keys: dict[int, Any], reads: Any, named: str, tmp_path: Path
) -> None:
    for task, items in keys.items():
        store(tmp_path, task, len(keys), items)
    refused = f"of count was made by {len(keys)} tasks? and cannot be dealt to 3: {named}"
    with pytest.raises(ClusterError, match=refused):
        dealt(tmp_path, 3, reads=reads)
    assert found(tmp_path) == keys
    assert dealt(tmp_path, len(keys), reads=reads) == 0


def test_stores_that_are_in_use_are_not_dealt(tmp_path: Path) -> None:
    items = stored(tmp_path, "abc", 1)
    (tmp_path / "count-4").mkdir()
    store(tmp_path, 1, 2, {})
    with pytest.raises(ClusterError, match="was made by 1 and by 2 tasks: directories of it are missing"):
        dealt(tmp_path, 3)
    assert found(tmp_path)[0] == items


# With a disk that is waited for, at every third effect: the code is the same, and each takes a tenth of a second.
@pytest.mark.parametrize(("before", "after", "full", "step"), [(2, 3, False, 1), (1, 2, True, 3)])
def test_whatever_effect_it_is_killed_at_the_next_task_finishes(
    before: int, after: int, full: bool, step: int, tmp_path: Path
) -> None:
    items, base, root = stored(tmp_path / "base", "abcdef", before), tmp_path / "base", tmp_path / "root"
    copy_of(base, root)
    effects = effects_of(lambda: dealt(root, after, full=full))
    for nth in range(1, len(effects) + 1, step):
        copy_of(base, root)
        assert dies_at(nth, lambda: dealt(root, after, full=full))
        if not (root / "count-dealt").exists():
            assert found(root) in (expected(items, before), expected(items, after))
        dealt(root, after, index=after - 1, full=full)
        assert found(root) == expected(items, after)
        assert sorted(path.name for path in root.iterdir()) == [f"count-{task}" for task in range(after)]
