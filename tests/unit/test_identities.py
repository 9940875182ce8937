"""Identities of tuples, what is settled of them, and what a state remembers: by simple models of each."""

from __future__ import annotations

import pickle
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import Stream, Topology, TopologyBuilder
from squall.engine.api.tuple import TupleSource
from squall.engine.errors import ComponentError
from squall.engine.state import absorbed
from squall.engine.state.absorbed import AGAIN, FRESH, SETTLED, Absorbed, Emitted
from squall.engine.state.children import Children
from squall.engine.state.lineage import NUMBER_BITS, Lineage, Slots, is_ordered
from squall.engine.state.settled import Floor, Settling, StoredFloor
from squall.testing import FixedSpout
from tests.process.state_parts import Again, Count

# ---- identities ----


Bolt = tuple[int, dict[int, str]]
"""Its tasks, and the earlier components that it reads, 0 for the spout, by "fields", "all" or "shuffle"."""
BOLTS = st.lists(st.tuples(st.integers(1, 3), st.dictionaries(
    st.integers(0, 9), st.sampled_from(["fields", "all", "shuffle"]), min_size=1, max_size=3,
)), min_size=1, max_size=4)


def topology_of(shape: list[Bolt], reads_all: bool) -> Topology:
    """All lead to "state", or those that the last one reads; a number of an input counts from the spout, modulo."""
    builder = TopologyBuilder()
    builder.set_spout("0", FixedSpout(("word",), []))
    for at, (tasks, inputs) in enumerate(shape, 1):
        bolt = builder.set_bolt(str(at), Again(), parallelism=tasks)
        for source, grouping in {str(number % at): grouping for number, grouping in inputs.items()}.items():
            getattr(bolt, f"{grouping}_grouping")(source, *(["word"] if grouping == "fields" else []))
    state = builder.set_bolt("state", Count())
    for at in range(1 if reads_all else len(shape), len(shape) + 1):
        state.global_grouping(str(at))
    return builder.build()


def part(text: str, most: int) -> int:
    return zlib.crc32(text.encode()) % most


def made_of(lineage: Lineage, index: int, source: str, rows: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """What a task emits from tuples of one source, in one of the ways in which it may be called."""
    first = lineage.first(TupleSource(source, 0, "default", Stream("value")), index)
    children = Children(lineage, [identity for _, identity in rows], first)
    made = [(row, number) for row, (value, _) in enumerate(rows) for number in range(part(value, 4))]
    # In one call, or two.
    cut, parents = len(made) // (1 + part(repr(rows), 2)), [row for row, _ in made]
    identities = children.of(parents[:cut], True) + children.of(parents[cut:], False)
    values = [f"{rows[row][0]}/{lineage.component}.{number}" for row, number in made]
    return zip(values, identities, strict=True)


def run(topology: Topology, rng: random.Random) -> Counter[tuple[str, int]]:
    """Values and identities of all that is made of three messages and leads to state; `rng` chooses tasks where a
    grouping is free to."""
    around: dict[str, Any] = {name: spec.component for name, spec in topology.components.items()}
    emitted = {"0": [(f"m{number}", number << around["0"].lineage.path_bits) for number in (0, 1, (1 << 40) - 1)]}
    for spec in topology.components.values():
        lineage = getattr(around[spec.id], "lineage", None)
        if spec.is_spout or lineage is None or not lineage.carried:
            continue
        emitted[spec.id] = []
        for one in spec.subscriptions:
            rows = [
                (index, row) for row in emitted[one.source] for index in (
                    range(spec.tasks) if one.grouping == "all" else
                    [rng.randrange(spec.tasks) if one.grouping == "shuffle" else part(row[0], spec.tasks)]
                )
            ]
            for index in range(spec.tasks):
                its = [row for at, row in rows if at == index]
                emitted[spec.id] += made_of(lineage, index, one.source, its)
    return Counter(row for rows in emitted.values() for row in rows)


@given(BOLTS, st.booleans())
def test_identities_differ_and_a_replay_repeats_them_whichever_task_it_meets(shape: list[Bolt], all_: bool) -> None:
    topology = topology_of(shape, all_)
    made = run(topology, random.Random(1))
    assert len({identity for _, identity in made}) == made.total()
    assert run(topology, random.Random(2)) == made


@pytest.mark.parametrize(("kinds", "tasks"), [(1, 1 << 12), (3, 1 << 10), (5, 1 << 9)])
def test_too_many_emits_are_refused_before_two_are_alike(kinds: int, tasks: int) -> None:
    copied = frozenset({("lines", "default")})
    lineage = Lineage("split", 40, {}, kinds - 1, kinds, copied, tasks, True)
    first = lineage.first(TupleSource("lines", 0, "default", Stream("line")), tasks - 1)
    children = Children(lineage, [5], first)
    ways: list[Callable[[int], list[int]]] = [
        lambda count: children.of([0] * count, True), lambda count: children.of([0] * count, False),
    ]
    for way in ways:
        children.drop()
        assert 5 << 20 < way(lineage.most)[-1] < 6 << 20
        children.drop()
        with pytest.raises(ComponentError, match=f"split emitted .* allowed: {lineage.most:,}"):
            way(lineage.most + 1)


# ---- what is settled ----

POSITIONS = [0, 1, 2, 5, 6, 9, 10, 11, 40]
PREFIXES: list[Any] = [("line",), ("file", 1)]


class Spout:
    """The messages of one task over its lives, and what must hold of their floors."""

    def __init__(self, firsts: list[int]) -> None:
        """`firsts`: the place of the first position in each partition."""
        self.firsts = dict(zip(PREFIXES, firsts, strict=True))
        self.floors: dict[str, StoredFloor] = {}
        self.acked: set[Any] = set()
        self.numbers: dict[Any, int] = {}
        self.die(None, 0)

    def store(self, rows: Iterable[StoredFloor]) -> None:
        for row in rows:
            before, floor = self.floors.get(row.prefix, row), row.floor
            assert (row.local, floor.first) == (before.local, before.floor.first)
            assert floor.number >= before.floor.number
            assert floor.buried >= before.floor.buried
            self.floors[row.prefix] = row

    def floor(self, prefix: Any) -> StoredFloor:
        return self.floors.get(repr(prefix), StoredFloor(repr(prefix), 0, Floor()))

    def newest(self, prefix: Any) -> int:
        return max((one[-1] for one in self.emitted if one[:-1] == prefix), default=-1)

    def die(self, prefix: Any, back: int) -> None:
        """Begin a life; it reads from some way before the first message that is not settled."""
        self.begun = {one: self.floor(one).floor.number for one in PREFIXES}
        self.settling = Settling("lines[1]", Slots(2, 5), list(self.floors.values()))
        self.settling.store = self.store
        self.at = {
            one: max(first, sum(number < self.begun[one] for number in POSITIONS) - back % 4 * (one == prefix))
            for one, first in self.firsts.items()
        }
        self.open, self.buried, self.emitted = set[Any](), set[Any](), set[Any]()

    def send(self, message_id: Any) -> None:
        identity = self.settling.emitted(message_id, (), "default")
        assert self.numbers.setdefault(message_id, identity) == identity
        self.emitted.add(message_id)

    def emit(self, prefix: Any, _: int) -> None:
        why, at = self.floor(prefix).broken, self.at[prefix]
        if why:
            with pytest.raises(ComponentError, match=re.escape(why)):
                self.send((*prefix, 50))
        elif at < len(POSITIONS):
            self.at[prefix] += 1
            self.send((*prefix, POSITIONS[at]))
            self.open.add((*prefix, POSITIONS[at]))

    def again(self, _: Any, choice: int) -> None:
        """What failed, or was given up and is sent again by hand."""
        if several := sorted(self.open | self.buried, key=repr):
            self.send(several[choice % len(several)])

    def answer(self, _: Any, choice: int) -> None:
        if several := sorted(self.open, key=repr):
            message_id, bury = several[choice % len(several)], choice % 3 == 0
            self.settling.answered(message_id, buried=bury)
            self.open.remove(message_id)
            (self.buried if bury else self.acked).add(message_id)

    def descend(self, prefix: Any, choice: int) -> None:
        """Emit a position for the first time, below another: nothing is emitted there any more."""
        begun, first, newest = self.begun[prefix], self.floor(prefix).floor.first, self.newest(prefix)
        if never := [n for n in range(newest) if n < first or (n >= begun and n not in POSITIONS)]:
            with pytest.raises(ComponentError, match=r"emitted message id .* for the first time.*which ascend"):
                self.send((*prefix, never[choice % len(never)]))
            self.die(None, 0)

    def rise(self, *_: Any) -> None:
        self.store(self.settling.risen())
        for prefix in PREFIXES:
            floor = self.floor(prefix).floor
            assert all(not floor.settles(number) or (*prefix, number) in self.acked for number in POSITIONS)
        assert self.settling.has_open == any(one[-1] >= self.begun[one[:-1]] for one in self.open)


@given(st.lists(st.tuples(
    st.sampled_from([*["emit"] * 4, "answer", "answer", "answer", "again", "die", "rise", "descend"]),
    st.sampled_from(PREFIXES), st.integers(0, 99),
), max_size=60), st.lists(st.integers(0, 3), min_size=2, max_size=2))
def test_floors_pass_only_what_is_acked_or_buried(ops: list[tuple[str, Any, int]], firsts: list[int]) -> None:
    spout = Spout(firsts)
    for op, prefix, choice in ops:
        getattr(spout, op)(prefix, choice)
    while spout.open:
        spout.answer(None, 1)
    spout.rise()
    for prefix in PREFIXES:
        assert spout.floor(prefix).floor.number == max(spout.begun[prefix], spout.newest(prefix) + 1)
    assert len(set(spout.numbers.values())) == len(spout.numbers)


def test_ids_that_are_no_positions_are_open_until_their_answer_and_on_one_stream() -> None:
    settling = Settling("lines[1]", Slots(0, 1), [])
    settling.store = lambda rows: None
    ids: list[Any] = ["a", b"a", None, True, -1, 1 << NUMBER_BITS, ("a", "b"), (), 1.5, ["list"]]
    identities = [settling.emitted(message_id, ("value",), "one") for message_id in ids]
    assert not any(is_ordered(identity >> NUMBER_BITS) for identity in identities)
    assert len(set(identities)) == len(ids)
    settling.emitted(("file", 7), ("value",), "one")
    for message_id in [*ids, ("file", 7)]:
        with pytest.raises(ComponentError, match=r"on streams 'one' and 'other'.*an id of its own for each emit"):
            settling.emitted(message_id, ("value",), "other")
        assert settling.has_open
        settling.answered(message_id)
    assert not settling.has_open


# ---- what is absorbed ----

BITS = 20
IDENTITY = st.builds(
    lambda partition, number, path: (partition << NUMBER_BITS | number) << BITS | path,
    st.sampled_from([0, 7, 1 << 24 | 3]), st.integers(0, 6), st.integers(0, 2),
)
BATCHES = st.lists(st.one_of(
    st.tuples(st.just("batch"), st.lists(IDENTITY, min_size=1, max_size=6), st.integers(0, 1 << 12)),
    st.tuples(st.just("floor"), st.sampled_from([0, 7]), st.tuples(st.sampled_from([2, 7]), st.integers(0, 6))),
    st.tuples(st.sampled_from(["forget", "forget", "reopen"]), st.none(), st.none()),
), min_size=10, max_size=30)


class Memory:
    """What is absorbed, beside a model of it."""

    def __init__(self) -> None:
        self.floors: dict[int, Floor] = {}
        self.stored: dict[int, bytes] = {}
        self.model: dict[int, tuple[int, list[Any]]] = {}
        self.reopen()

    def settled(self, identity: int) -> bool:
        partition, number = divmod(identity >> BITS, 1 << NUMBER_BITS)
        return self.floors.get(partition, Floor()).settles(number)

    def batch(self, what: list[int], choice: int) -> None:
        found = self.its.known(what)
        expected = [
            self.model[one][0] if one in self.model else SETTLED.number if self.settled(one)
            else AGAIN.number if one in what[:at] else FRESH.number for at, one in enumerate(what)
        ]
        assert [FRESH.number] * len(what) == expected if found is None else [g.number for g in found] == expected
        for one, group in zip(what, found or (), strict=False):
            assert group.number < 0 or group.emitted_for(one) == self.model[one][1]
        rows = [
            at for at, number in enumerate(expected)
            if number == FRESH.number and (found is None or choice >> at & 1)  # others failed
        ]
        if rows:
            parents = [place for place in range(len(rows)) for _ in range(choice >> place & 3)]
            emitted = [Emitted("words", None, parents, (parents, list(range(len(parents)))))] if parents else []
            group = self.its.new_group([what[row] for row in rows], emitted, len(rows) == len(what))
            assert group.number not in self.stored
            self.stored[group.number] = group.packed()
            self.its.add(group)
            for place, row in enumerate(rows):
                made = [("words", None, (place, at)) for at, parent in enumerate(parents) if parent == place]
                self.model[what[row]] = group.number, made

    def floor(self, partition: int, risen: tuple[int, int]) -> None:
        before, (number, buried) = self.floors.get(partition, Floor()), risen
        gone = {buried} if before.number <= buried < number else set()
        self.floors[partition] = Floor(max(before.number, number), before.buried | gone)

    def forget(self, *_: None) -> None:
        gone = self.its.forgettable()
        forgotten = {one for one, (number, _) in self.model.items() if number in gone}
        assert all(self.settled(one) and is_ordered(one >> BITS >> NUMBER_BITS) for one in forgotten)
        self.its.forget(gone)
        self.model = {one: its for one, its in self.model.items() if one not in forgotten}
        self.stored = {number: packed for number, packed in self.stored.items() if number not in gone}

    def reopen(self, *_: None) -> None:
        self.its = Absorbed(BITS, self.floors)
        for number, packed in sorted(self.stored.items()):
            self.its.load(number, pickle.loads(packed))


@given(BATCHES)
def test_what_is_absorbed_is_known_until_it_is_settled(ops: list[Any]) -> None:
    with mock.patch.object(absorbed, "GENERATION", 4):
        memory = Memory()
        for op, what, choice in ops:
            getattr(memory, op)(what, choice)
            assert len(memory.its) == len(memory.model)
