"""A task's state over its store: a dict by key, whatever is committed, rolled back, aged or opened again in between."""

from __future__ import annotations

import contextlib
import copy
import datetime
import pickle
import random
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, ComponentError
from squall.engine.state import keyed
from squall.engine.state.commits import TaskPlace
from squall.engine.state.keyed import State
from squall.engine.state.reading import items_of
from squall.engine.state.records.lineage import Lineage
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.task_store import STORE_FILE, TaskStore

KEYS: list[Any] = [
    0, 1, -1, 2**63, -(2**63), 2**70, "", "a", "a\0b", "é", "\ud800", b"", b"a", None, (), ("a", 1), (None, (b"x",)),
    1.5, ("a", 1.5), Decimal("0.3"), datetime.date(2026, 1, 1), frozenset("a"), uuid.UUID(int=7),
]
TEXT = st.text("a\0é\ud800\U0001f600", max_size=3)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=3)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2))
KEY = st.sampled_from(KEYS)


class Kept:
    """A state that is committed as its task does it."""

    def __init__(self, directory: str | Path, kept: int = 100, ttl_secs: float | None = None) -> None:
        self.path, self.kept, self.secs = Path(directory), kept, 0
        self.ttl_secs = ttl_secs
        bolt = SimpleNamespace(
            outputs=(), component_config={}, state_ttl_secs=ttl_secs, state_kept_keys=kept, durability="process",
            prepare=lambda conf, context: None,
        )
        self.task = StatefulTask(bolt, TaskPlace(Lineage("count", 0, {}), {}, frozenset(), {}, 0))
        self.open()

    def open(self) -> None:
        context: Any = SimpleNamespace(
            component_id="count", task_id=1, task_index=0, state_root=str(self.path), state_dir=str(self.path),
            component_tasks=lambda component: [0], now_ns=self.now_ns, wall_ns=self.now_ns, warn=print,
        )
        self.task.prepare({}, context)
        self.commits = self.task.commits
        self.store, self.state = self.commits.store, self.commits.state

    def now_ns(self) -> int:
        return self.secs * NS_PER_SEC

    def sweep(self) -> None:
        assert self.ttl_secs is not None
        self.task.sweep(self.now_ns(), self.ttl_secs)

    def close(self) -> None:
        self.store.close()

    def commit(self, times: int = 1, **changes: Any) -> None:
        for _ in range(times):
            self.state.update(changes)
            try:
                self.commits.commit((), ())
            except BaseException:  # as in _absorb
                self.commits.undo()
                raise

    def died(self) -> None:
        """Go on as the next life of the task after a kill: with the files as they are now."""
        left = {name: (self.path / name).read_bytes() for name in (STORE_FILE, f"{STORE_FILE}-wal")}
        self.close()
        for name, content in left.items():
            (self.path / name).write_bytes(content)
        (self.path / f"{STORE_FILE}-shm").unlink(missing_ok=True)
        self.open()

    def reads(self, keys: Iterable[Any]) -> int:
        """Look for keys; how many of them were not in memory."""
        with mock.patch.object(self.store, "get", wraps=self.store.get) as get:
            for key in keys:
                self.state.get(key)
        return int(get.call_count)

    def reopened(self) -> State:
        self.close()
        self.open()
        return self.state


@contextlib.contextmanager
def opened(log: int = 256, **named: Any) -> Iterator[Kept]:
    """`log`: the commits that it holds."""
    with (
        mock.patch.object(keyed, "COMMITS_IN_LOG", log), tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Kept(directory, **named)) as its,
    ):
        yield its


def shown(items: Any) -> list[str]:
    """Whatever order; 1 differs from True, -0.0 from 0.0, and nan is nan."""
    return sorted(map(repr, items))


class StateIsADict(RuleBasedStateMachine):
    @initialize(
        kept=st.sampled_from([1, 3, 1000]), log=st.sampled_from([0, 2, 256]), pending=st.sampled_from([0, 3, 50_000]),
        loaded=st.sampled_from([1, 4, 20_000]), at_once=st.sampled_from([0, 1, 200]),
    )
    def begin(self, kept: int, log: int, pending: int, loaded: int, at_once: int) -> None:
        self.open = contextlib.ExitStack()
        patched = mock.patch.multiple(keyed, KEYS_IN_LOG=pending, LOADED_AT_ONCE=loaded, _AT_ONCE=at_once)
        self.open.enter_context(patched)
        self.its = self.open.enter_context(opened(log, kept=kept))
        self.model: dict[Any, Any] = {}
        self.stored: dict[Any, Any] = {}

    def teardown(self) -> None:
        if hasattr(self, "open"):
            self.open.close()

    def both(self, do: Callable[[dict[Any, Any]], Any]) -> None:
        answers = []
        for one in (self.its.state, self.model):
            try:
                answers.append(repr(do(one)))
            except KeyError as error:
                answers.append(repr(error))
        assert answers[0] == answers[1]

    @rule(items=st.dictionaries(KEY, VALUES, max_size=4))
    def items_are_set(self, items: dict[Any, Any]) -> None:
        self.its.state.update(copy.deepcopy(items))
        self.model.update(items)

    @rule(key=KEY, how=st.integers(0, 8))
    def is_asked(self, key: Any, how: int) -> None:
        self.both([
            lambda one: one[key], lambda one: one.get(key), lambda one: one.get(key, 7), lambda one: key in one, len,
            bool, lambda one: one.__delitem__(key), lambda one: one.pop(key), lambda one: one.pop(key, 7),
        ][how])

    @rule(key=KEY, value=st.integers())
    def is_changed_in_place(self, key: Any, value: int) -> None:
        def change(one: dict[Any, Any]) -> None:
            found = one.setdefault(key, [])
            if isinstance(found, list):
                found.append(value)
            elif isinstance(found, dict):
                found[value] = [value]

        self.both(change)

    @rule(how=st.integers(0, 4))
    def is_iterated(self, how: int) -> None:
        look: Any = [list, lambda one: one.items(), lambda one: one.values(), lambda one: one.keys(), dict][how]
        assert shown(look(self.its.state)) == shown(look(self.model))

    @precondition(lambda self: self.model)
    @rule()
    def an_item_is_popped(self) -> None:
        key, value = self.its.state.popitem()
        assert repr(value) == repr(self.model.pop(key))
        if len(self.model) > 6:
            self.both(lambda one: one.clear())

    @rule(times=st.integers(1, 3))
    def is_committed(self, times: int) -> None:
        self.its.commit(times)
        self.stored = copy.deepcopy(self.model)
        assert shown(items_of(self.its.path / STORE_FILE)) == shown(self.stored.items())

    @rule(how=st.sampled_from(["roll back", "die", "open again"]))
    def what_is_not_committed_is_lost(self, how: str) -> None:
        if how == "open again":
            self.its.reopened()
        elif how == "die":
            self.its.died()
        self.its.state.roll_back()
        self.model = copy.deepcopy(self.stored)

    @rule(step=st.sampled_from(["begin", "append", "put", "cut_log", "end"]), done=st.booleans(), dies=st.booleans())
    def a_commit_that_fails_at_any_step_leaves_nothing(self, step: str, done: bool, dies: bool) -> None:
        """`done`: the step was made, and what follows fails. `dies`: the process does, then."""
        real, has_failed = getattr(TaskStore, step), False

        def fails(store: TaskStore, *given: Any) -> Any:
            nonlocal has_failed
            if has_failed:  # the next life
                return real(store, *given)
            has_failed = True
            if done and step != "end":
                real(store, *given)
            if dies:
                self.its.died()
            raise ClusterError("no room")

        with mock.patch.object(TaskStore, step, fails), contextlib.suppress(ClusterError):
            self.its.commit()
        # Not each commit has each step.
        self.stored = self.stored if has_failed else copy.deepcopy(self.model)
        self.model = copy.deepcopy(self.stored)
        assert shown(items_of(self.its.path / STORE_FILE)) == shown(self.stored.items())


TestStateIsADict = StateIsADict.TestCase
TestStateIsADict.settings = settings(max_examples=25, stateful_step_count=40)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_with_little_memory_is_that_of_a_dict(seed: int) -> None:
    """Keys leave the cache, and come back from the log, from what waits for its place and from the table."""
    rng = random.Random(seed)
    few, at_once = rng.choice([4, 12]), rng.choice([0, 1])
    patched = mock.patch.multiple(keyed, KEYS_IN_LOG=few, LOADED_AT_ONCE=2, _AT_ONCE=at_once)
    with opened(rng.choice([2, 5]), kept=rng.choice([2, 6, 12])) as its, patched:
        model: dict[int, int] = {}
        for number in range(300):
            for key in rng.sample(range(16), rng.choice([1, 1, 2, 8])):
                if rng.random() < 0.2:
                    assert its.state.pop(key, None) == model.pop(key, None)
                elif rng.random() < 0.7:
                    assert its.state.get(key) == model.get(key)
                    its.state[key] = model[key] = number
            its.commit()
            if rng.random() < 0.05:
                its.died()
            elif rng.random() < 0.05:
                assert dict(its.state) == model
                its.commits.undo()
            asked = rng.sample(range(16), 2)  # all would be in the cache from then on
            assert [its.state.get(key) for key in asked] == [model.get(key) for key in asked]


@pytest.mark.parametrize("kept", [1, 100])
def test_a_state_that_begins_to_age_has_what_its_log_held(kept: int) -> None:
    with opened(kept=kept) as its, mock.patch.multiple(keyed, KEYS_IN_LOG=1, LOADED_AT_ONCE=1):
        its.commit(a=1, b=1)
        its.task.inner.state_ttl_secs = 10
        its.reopened()
        for its.secs in (1, 2, 3):
            its.commit(a=its.secs)
            for key in "cdef":
                its.state.get(key)
            its.commit(other=its.secs)
            assert (its.state.get("a"), its.state.get("b")) == (its.secs, 1)
            its.commits.undo()
        assert dict(its.reopened()) == {"a": 3, "b": 1, "other": 3}


@pytest.mark.parametrize("log", [3, 256])
def test_memory_and_the_log_stay_bounded_while_hot_keys_are_in_the_log(log: int) -> None:
    """Others come and go, are set once, or are asked for and not there."""
    kept, hot = 40, 5
    with opened(log, kept=kept) as its, mock.patch.multiple(keyed, KEYS_IN_LOG=60, _AT_ONCE=2):
        for number in range(1_500):
            for place in range(hot):
                its.state["hot", place] = number
            its.state["set", number] = number
            its.state["gone", number] = number
            its.state.pop(("gone", number - 3), None)
            its.state.get(("missing", number))
            its.commit()
            if number % 300 == 299:
                # In memory are those of the cache, and what is logged and waits for its place.
                for what in ("set", "missing"):
                    assert its.reads((what, one) for one in range(number)) > number - 2 * kept - 150
                its.commits.undo()
        assert len(list(its.store.log())) < 150
        assert len(its.state) == hot + 1_500 + 3
        its.commits.undo()
        assert dict(its.reopened()) == {
            **{("hot", place): 1_499 for place in range(hot)}, **{("set", number): number for number in range(1_500)},
            **{("gone", number): number for number in range(1_497, 1_500)},
        }


@pytest.mark.parametrize("removed", [False, True], ids=["set", "removed"])
@pytest.mark.parametrize(("key", "known"), [
    (float("nan"), 1), (("a", float("nan")), ("a", 1)), (SimpleNamespace, "a"), (lambda: None, "a"), (range(1), 1),
], ids=lambda key: type(key).__name__)
def test_a_bad_key_is_refused_by_name_and_leaves_nothing(key: Any, known: Any, removed: bool) -> None:
    with opened() as its:
        its.state[known] = 1
        its.commit()
        its.state["good"], its.state[key] = 2, 2
        if removed:
            its.state.pop(key)
        with pytest.raises(ComponentError, match=r"count\[1\] set state\[.*\]: (nan is no|.*; expected te)") as raised:
            its.commit()
        assert repr(key)[:20] in str(raised.value)
        assert dict(its.state) == dict(its.reopened()) == {known: 1}


class OfOtherCode:
    def __reduce__(self) -> Any:
        return pickle.loads, (b"no pickle",)


def test_a_value_that_cannot_be_pickled_or_read_is_told_with_its_key() -> None:
    with opened() as its:
        with pytest.raises(ComponentError, match=r"state\['bad'\] is .* of type list, which cannot be stored: "):
            its.commit(good=1, bad=[lambda: None])
        assert dict(its.state) == {}
        its.commit(good=1, other=OfOtherCode())
        with pytest.raises(ClusterError, match=r"state\['other'\] of count\[1\] cannot be read: .*by other code"):
            its.state.get("other")
        assert its.reopened()["good"] == 1


@pytest.mark.parametrize("look", [
    repr, lambda one: one == {"a": 1}, lambda one: one != {"a": 1}, lambda one: one | {}, lambda one: {} | one,
    lambda one: [*reversed(one)], lambda one: one.copy(),
])
def test_what_was_not_used_yet_is_seen(look: Callable[[Any], Any]) -> None:
    with opened() as its:
        its.commit(a=1)
        its.reopened()
        assert look(its.state) == look({"a": 1})


@pytest.mark.parametrize("kept", [2, 5, 100])
@pytest.mark.parametrize("log", [0, 8, 256])
def test_values_that_are_used_stay_and_others_age_away(log: int, kept: int, seed: int) -> None:
    """Between ten seconds and fifteen after its last use, which may be a look."""
    rng, used = random.Random(f"{seed} {log} {kept}"), dict[Any, tuple[int, Any]]()
    keys = ["a", "b", "c", "d", 1.5, 7, ("a", 1), frozenset("ab")]
    with opened(log, kept=kept, ttl_secs=10) as its:
        for _ in range(300):
            its.secs += rng.choice([1] * 9 + [20])
            full = mock.patch.object(its.store, "remove_older", side_effect=ClusterError)
            with full, contextlib.suppress(ClusterError):
                its.sweep()
            its.sweep()
            for key in rng.sample(keys, rng.choice([0, 0, 1, 2])):
                at, value = used.get(key, (-100, None))
                found = its.state.get(key)
                assert found == value or (found is None and its.secs - at >= 10)
                assert found is None or its.secs - at <= 15
                if found is None or rng.random() < 0.3:
                    its.state[key] = found = rng.choice([its.secs, b"\0text", "\0", [its.secs]])
                used[key] = its.secs, found
            its.commit(busy=its.secs)
            if rng.random() < 0.1:
                there = {key for key, (at, _) in used.items() if its.secs - at < 10} | {"busy"}
                known = {key for key, (at, _) in used.items() if its.secs - at <= 15} | {"busy"}
                assert there <= {*(its.reopened() if rng.random() < 0.3 else its.state)} <= known
                its.commits.undo()
