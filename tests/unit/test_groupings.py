"""Groupings: which tasks receive a tuple, with the tolerances of Storm's own tests."""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import ComponentError, CustomGrouping, Stream, TopologyBuilder
from squall.engine.api.columns import Columns
from squall.engine.api.topology import FIELDS, Subscription
from squall.engine.flow.batch_groupings import make_spread
from squall.engine.flow.groupings import Keys, TextHash, custom_chooser, fields_chooser, make_chooser
from squall.engine.flow.shuffle_rounds import HORIZON_NS, TOLERANCE_NS, Rounds, shares_of
from squall.engine.foreign.stable_hash import stable_hash
from tests.unit.rig import Does, Feeder, Rig, acks, work

SHAPE = Stream("key", "value")


def choices(
    grouping: str, targets: Sequence[int], tuples: Sequence[tuple[Any, ...]], fields: tuple[str, ...] = (),
    local: Sequence[int] = (), seed: int = 1,
) -> list[tuple[int, ...]]:
    """The tasks each tuple goes to."""
    subscription = Subscription("spout", "default", grouping, fields)
    keys, new_rng = Keys(range(len(targets)), len(targets)), partial(random.Random, seed)
    one, many = make_chooser(subscription, SHAPE, targets, local, new_rng, [].append, keys)
    if one is not None:
        return [(targets[one(values)],) for values in tuples]
    assert many is not None
    return [tuple(targets[index] for index in many(values)) for values in tuples]


def tuples(count: int) -> list[tuple[str, int]]:
    return [(f"key-{n}", n) for n in range(count)]


def test_fields_by_several_fields_uses_all_of_them_in_the_order_given() -> None:
    rows = [(key, value) for key in range(10) for value in range(10)]
    by_both = choices("fields", range(7), rows, ("key", "value"))
    assert by_both != choices("fields", range(7), rows, ("key",))
    assert by_both == [(stable_hash(row) % 7,) for row in rows]
    assert by_both != choices("fields", range(7), rows, ("value", "key"))


class Word(str):
    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("text_hash", [stable_hash, hash])
@pytest.mark.parametrize(
    "key", ["word", Word("word"), Colour.RED, 5, 5.0, ("a", 1), ["a", 1], {"a": 1}, bytearray(b"x"), None]
)
def test_a_key_has_one_task_of_whatever_kind_it_is(key: Any, text_hash: TextHash) -> None:
    expected = text_hash(str.__str__(key)) if isinstance(key, str) else stable_hash(key)
    assert by_row([key], 7, text_hash)[expected % 7] == [key]


def test_a_key_without_a_stable_hash_is_refused() -> None:
    with pytest.raises(ComponentError, match="fields grouping cannot use"):
        choices("fields", range(3), [(object(), 0)], ("key",))


def test_remembered_keys_are_bounded() -> None:
    keys, most = Keys(list("abc"), 3), 0
    for n in range(300_000):
        assert keys.of(n) == "abc"[stable_hash(n) % 3]
        most = max(most, len(keys.memo))
    assert 100_000 < most < 150_000


def test_partial_key_uses_two_tasks_a_key_and_balances() -> None:
    # One key in two is the same: a fields grouping would give half of all tuples to one task.
    rows = [("hot" if n % 2 else f"key-{n}", n) for n in range(10_000)]
    got = choices("partial_key", list(range(10, 15)), rows, ("key",))
    tasks: dict[str, set[int]] = {}
    for (key, _), (task,) in zip(rows, got, strict=True):
        tasks.setdefault(key, set()).add(task)
    assert len(tasks["hot"]) == 2
    assert all(len(of_key) <= 2 for of_key in tasks.values())
    assert max(Counter(got).values()) < 0.35 * len(rows)


@pytest.mark.parametrize(("grouping", "local", "shares"), [
    ("shuffle", [], {(4,): 1000, (5,): 1000, (6,): 1000}),
    ("local_or_shuffle", [], {(4,): 1000, (5,): 1000, (6,): 1000}),
    ("local_or_shuffle", [4, 6], {(4,): 1500, (6,): 1500}),
    ("none", [], {(4,): 1000, (5,): 1000, (6,): 1000}),
    ("global", [], {(4,): 3000}),
    ("all", [], {(4, 5, 6): 3000}),
])
def test_other_groupings_spread_evenly_or_not_at_all(
    grouping: str, local: list[int], shares: dict[tuple[int, ...], int], seed: int
) -> None:
    got = Counter(choices(grouping, [4, 5, 6], tuples(3000), local=local, seed=seed))
    assert got == pytest.approx(shares, rel=0.1 if grouping == "none" else 0)


class Chooses(CustomGrouping):
    def __init__(self, chosen: Any) -> None:
        self.chosen = chosen

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return self.chosen  # type: ignore[no-any-return]


@pytest.mark.parametrize("chosen", [[99], None, 7, ["x"], [[1]]])
def test_a_custom_grouping_that_chooses_nonsense_is_named(chosen: Any) -> None:
    _, many = custom_chooser(Chooses(chosen), 1, [7, 8], Keys(range(2), 2))
    assert many is not None
    with pytest.raises(ComponentError, match=r"Chooses\.choose_tasks returned .*; allowed: a list of \[7, 8\]"):
        many(("k", 1))


# ---- rows of a batch go where the same rows go one by one, whatever kind of column their key is in ----


COLUMN = Stream("value")
TEXTS: list[Any] = ["", "a", "ä", "\ud800", "b" * 300, *(f"word {number % 70}" for number in range(300))]


def by_batch(column: Any, n_targets: int, text_hash: TextHash) -> list[list[Any]]:
    """The rows that each target gets."""
    keys = Keys(range(n_targets), n_targets, stable_hash, text_hash)
    one = fields_chooser(COLUMN, ("value",), keys)
    rows = Columns((column,), len(column))
    found: list[list[Any]] = [[] for _ in range(n_targets)]
    spread = make_spread(Subscription("spout", "default", FIELDS, ("value",)), COLUMN, one, None, keys)
    for target, wanted in spread(rows):
        found[target] += [value for (value,) in (rows if wanted is None else rows.select(wanted))]
    return found


def by_row(values: list[Any], n_targets: int, text_hash: TextHash) -> list[list[Any]]:
    choose = fields_chooser(COLUMN, ("value",), Keys(range(n_targets), n_targets, stable_hash, text_hash))
    found: list[list[Any]] = [[] for _ in range(n_targets)]
    for value in values:
        found[choose((value,))].append(value)
    return found


@pytest.mark.parametrize("text_hash", [hash, stable_hash], ids=["hash", "stable hash"])
@pytest.mark.parametrize("n_targets", [1, 2, 3, 4, 7, 64, 255, 256, 257])
def test_texts_in_a_list(n_targets: int, text_hash: TextHash) -> None:
    assert by_batch(TEXTS, n_targets, text_hash) == by_row(TEXTS, n_targets, text_hash)


VALUES: dict[str, list[Any]] = {
    "texts": [text for text in TEXTS if text != "\ud800"],
    "integers": [number % 90 - 40 for number in range(300)],
    "floats": [0.0, -0.0, 1.0, 1.5, *(number % 40 / 8 for number in range(300))],
    "bytes": [bytes([number % 50]) * 5 for number in range(300)],
    "lists": [[number % 20] for number in range(100)],
    "none at all": [],
}
ARROW: dict[str, Callable[[Any, Any], Any]] = {
    "array": lambda arrow, column: column,
    "chunked": lambda arrow, column: arrow.chunked_array([column[:50], column[50:70], column[70:]]),
    "sliced": lambda arrow, column: column[5:90],
    "dictionary": lambda arrow, column: column.dictionary_encode(),
    "view": lambda arrow, column: column.cast(arrow.string_view()),
}
COLUMNS = [("view", "texts"), *(
    (kind, what) for kind in ARROW for what in VALUES if kind != "view" and (kind, what) != ("dictionary", "lists")
)]


@pytest.mark.parametrize(("kind", "what"), COLUMNS)
@pytest.mark.parametrize("nulls", [[], [None, None]], ids=["whole", "with nulls"])
@pytest.mark.parametrize("n_targets", [2, 3])
def test_arrow(kind: str, what: str, nulls: list[None], n_targets: int) -> None:
    arrow = pytest.importorskip("pyarrow")
    column = ARROW[kind](arrow, arrow.array(nulls + VALUES[what]))
    values = column.to_pylist()
    found = by_batch(column, n_targets, hash)
    assert found == by_row(values, n_targets, hash)
    assert {id(type(value)) for rows in found for value in rows} == {id(type(value)) for value in values}


# ---- shuffles that follow the waits of their targets ----


T = TypeVar("T")
MS = 1_000_000


def rounds_of(choices: Sequence[T]) -> Rounds[T]:
    return Rounds(range(len(choices)), choices.__getitem__, partial(random.Random, 1))


def taken(choose: Callable[[object], T], count: int) -> list[T]:
    return [choose(("values",)) for _ in range(count)]


@pytest.mark.parametrize("n_targets", [7, 300])
def test_every_target_comes_once_in_each_round(n_targets: int) -> None:
    choose = rounds_of(range(n_targets)).chooser()
    rounds = [taken(choose, n_targets) for _ in range(99)]
    assert sorted(rounds[0]) == list(range(n_targets))
    assert all(one == rounds[0] for one in rounds)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_the_longer_the_wait_the_smaller_the_share(waits: list[int]) -> None:
    shares = shares_of(waits)
    if shares is None:
        assert max(waits) - min(waits) <= TOLERANCE_NS
        return
    by_wait = [share for _, share in sorted(zip(waits, shares, strict=True), key=lambda pair: pair[0])]
    assert all(shorter >= longer for shorter, longer in pairwise(by_wait))
    assert by_wait[0] > 0
    assert all(not share for wait, share in zip(waits, shares, strict=True) if wait >= min(waits) + HORIZON_NS)


def test_targets_come_by_their_shares_and_evenly_spread() -> None:
    rounds = rounds_of("abc")
    choose = rounds.chooser()
    rounds.balance((16, 8, 0))
    got = taken(choose, 240)
    assert Counter(got) == {"a": 160, "b": 80}
    assert all(Counter(got[at : at + 3])["b"] == 1 for at in range(0, 240, 3))


def test_a_worker_prefers_the_task_that_does_not_keep_tuples_waiting() -> None:
    """Of two tasks in one worker, one has a queue."""
    spout = Feeder()
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", Does(acks), parallelism=2).shuffle_grouping("spout")
    rig = Rig(builder, threads=True)
    first, second = rig.plan.tasks_of("bolt")
    assert sorted(rig.core.pace.waits_ns()) == [first, second]
    busy = rig.core.bolt_tasks[first]
    busy.row_ns, busy.received = 10 * MS, busy.received + 3
    waits = rig.core.pace.waits_ns()
    assert waits[first] - waits[second] == 30 * MS
    rig.core.pace.balance(waits.__getitem__)
    busy.received -= 3
    for number in range(16):  # the first turn of a worker
        spout.feed(number, id=number)
    work(rig.core)
    assert [rig.core.stats[task].executed for task in (first, second)] == [0, 16]
