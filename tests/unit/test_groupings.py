"""Groupings: which tasks receive a tuple, with the tolerances of Storm's own tests."""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from squall import ComponentError, CustomGrouping, Stream, TopologyBuilder
from squall.engine.api.topology import Subscription
from squall.engine.flow.groupings import Keys, TextHash, make_chooser
from squall.engine.foreign.stable_hash import stable_hash
from tests.unit.lab import forwards
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, acks, emits

SHAPE = Stream("key", "value")


def choices(
    grouping: str, targets: Sequence[int], tuples: Sequence[tuple[Any, ...]], fields: tuple[str, ...] = (),
    local: Sequence[int] = (), seed: int = 1,
) -> list[tuple[int, ...]]:
    """The tasks each tuple goes to."""
    subscription = Subscription("spout", "default", grouping, fields)
    one, many = make_chooser(
        subscription, SHAPE, 1, targets, local, partial(random.Random, seed), range(len(targets))
    )
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
    swapped = [(value, key) for key, value in rows]
    assert by_both == choices("fields", range(7), swapped, ("value", "key"))


class Word(str):
    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("text_hash", [stable_hash, hash])
@pytest.mark.parametrize(
    "key", ["word", Word("word"), Colour.RED, 5, 5.0, ("a", 1), ["a", 1], {"a": 1}, bytearray(b"x"), None]
)
def test_whoever_sends_it_and_however_it_is_emitted_a_key_has_one_task(key: Any, text_hash: TextHash) -> None:
    spout = Feeder(("key",))
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    senders: dict[str, Any] = {
        "basic": DoesBasic(forwards, ("key",)),
        "plain": Does(emits(1), ("key",)),
        "more": DoesBasic(lambda bolt, tup, collector: collector.emit((0, *tup.values)), ("x", "key")),
    }
    for name, sender in senders.items():
        builder.set_bolt(name, sender).shuffle_grouping("spout")
    count = builder.set_bolt("count", Does(acks), 7)
    for name in ("spout", *senders):
        count.fields_grouping(name, "key")
    rig = Rig(builder, around={"text_hash": text_hash})
    spout.feed(key, id=1)
    rig.settle()
    got = [len(rig.user("count", index).own) for index in range(7)]
    assert sorted(got) == [0] * 6 + [4]
    expected = text_hash(str.__str__(key)) if isinstance(key, str) else stable_hash(key)
    assert got.index(4) == expected % 7


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
    subscription = Subscription("spout", "default", "custom", (), Chooses(chosen))
    _, many = make_chooser(subscription, SHAPE, 1, [7, 8], [], random.Random(1), range(2))
    assert many is not None
    with pytest.raises(ComponentError, match=r"Chooses\.choose_tasks returned .*; allowed: a list of \[7, 8\]"):
        many(("k", 1))
