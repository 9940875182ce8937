"""Identities of tuples, what is settled of them, and what a state remembers: by simple models of each."""

from __future__ import annotations

import pickle
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall import Stream, Topology, TopologyBuilder
from squall.connect import Queue
from squall.engine.api.tuple import TupleSource
from squall.engine.errors import ComponentError
from squall.engine.state.records import absorbed
from squall.engine.state.records.absorbed import AGAIN, FRESH, SETTLED, Absorbed, Emitted, Group
from squall.engine.state.records.floors import NOTHING, FollowedSpout, Settled
from squall.engine.state.records.lineage import HASHED, NUMBER_BITS, Children, Lineage, PartitionNumbers, is_ordered
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.records.record_store import RecordStore
from squall.engine.state.records.settled import DENSE, HELD_NS, NAME, PARTITION, TASK, Settling
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


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("kinds", "tasks"), [(1, 1 << 12), (3, 1 << 10), (5, 1 << 9)])
def test_too_many_emits_are_refused_before_two_are_alike(kinds: int, tasks: int, at_once: bool) -> None:
    lineage = Lineage("split", 40, {}, kinds - 1, kinds, frozenset({("lines", "default")}), tasks, True)
    first = lineage.first(TupleSource("lines", 0, "default", Stream("line")), tasks - 1)
    children = Children(lineage, [5], first)
    assert 5 << 20 < children.of([0] * lineage.most, at_once)[-1] < 6 << 20
    children.drop()
    with pytest.raises(ComponentError, match=f"split emitted .* allowed: {lineage.most:,}"):
        children.of([0] * (lineage.most + 1), at_once)


# ---- what is settled ----

POSITIONS = [0, 1, 2, 5, 6, 9, 10, 11, 40]
PREFIXES: list[Any] = [("line",), ("file", 1)]
KINDS = [TASK, PARTITION, DENSE, NAME]


class Spout:
    """The records of a spout of two tasks over their lives, and what must hold of what is settled."""

    def __init__(self, directory: str, kind: str) -> None:
        self.directory, self.kind, self.now_ns = directory, kind, 0
        self.acked, self.buried = set[Any](), set[Any]()
        self.numbers: dict[Any, int] = {}
        """Of each record that was emitted."""
        self.owners = dict.fromkeys(PREFIXES, 0)
        self.cursors: dict[Any, int] = {}
        self.open: dict[Any, None] = {}
        self.heard: dict[Any, Settling] = {}
        """The life of a task that heard the answer for a record."""
        self.tasks = [self.born(0), self.born(1)]

    def born(self, task: int) -> Settling:
        records = RecordStore(self.directory, "lines", task, 2)
        return Settling(f"lines[{task}]", self.kind, task, PartitionNumbers(2, 5), records)

    def record(self, task: int, prefix: Any, place: int) -> Any:
        """The id of a record."""
        if self.kind == NAME:
            return f"{prefix[0]} {place}"
        return *prefix, place if self.kind == DENSE else POSITIONS[place]

    def name(self, task: int, record: Any) -> Any:
        """What tells a record from all others."""
        return (task, record) if self.kind == TASK else record

    # ---- what happens ----

    def emit(self, task: int, prefix: Any, place: int) -> None:
        """Read on: from where all is answered, or from anywhere, if any task may."""
        if self.kind in (TASK, PARTITION):
            task = self.owners[prefix] if self.kind == PARTITION else task
            place = self.cursors.setdefault((task, prefix), self.resumed(task, prefix))
            self.cursors[task, prefix] = place + 1
        elif place >= len(POSITIONS):
            place %= len(POSITIONS)
        if place >= len(POSITIONS):
            return
        record = self.record(task, prefix, place)
        identity = self.tasks[task].emitted(record, (), "default")
        assert self.numbers.setdefault(self.name(task, record), identity) == identity
        self.open.setdefault((task, record), None)

    def resumed(self, task: int, prefix: Any) -> int:
        done = self.acked | self.buried
        names = [self.name(task, self.record(task, prefix, place)) for place in range(len(POSITIONS))]
        return next((place for place, name in enumerate(names) if name not in done), len(POSITIONS))

    def answer(self, task: int, prefix: Any, choice: int) -> None:
        if several := [record for at, record in self.open if at == task]:
            self.answered(task, several[choice % len(several)], bury=choice % 3 == 0)

    def answered(self, task: int, record: Any, bury: bool = False) -> None:
        self.tasks[task].answered(record, buried=bury)
        del self.open[task, record]
        name = self.name(task, record)
        (self.buried if bury else self.acked).add(name)
        self.heard[name] = self.tasks[task]

    def die(self, task: int, prefix: Any, choice: int) -> None:
        self.tasks[task].records.close()
        self.tasks[task] = self.born(task)
        self.open = {key: None for key in self.open if key[0] != task}
        self.cursors = {key: place for key, place in self.cursors.items() if key[0] != task}

    def move(self, task: int, prefix: Any, choice: int) -> None:
        """The other task reads a partition now, from what is not answered; this one still has records open."""
        if self.kind != PARTITION:
            return
        self.owners[prefix] = 1 - self.owners[prefix]
        self.cursors.pop((self.owners[prefix], prefix), None)

    def tell(self, task: int, prefix: Any, choice: int) -> None:
        self.now_ns += HELD_NS // 2
        self.tasks[task].records.tell("busy", None, self.tasks[task].progress(self.now_ns))
        self.check()

    # ---- what must hold ----

    def settled(self) -> dict[int, Settled]:
        spout = FollowedSpout(self.directory, PartitionNumbers(2, 5), 2)
        spout.look()
        spout.reader.close()
        return spout.settled

    def check(self) -> None:
        settled = self.settled()
        for name, identity in self.numbers.items():
            partition, number = divmod(identity, 1 << NUMBER_BITS)
            if settled.get(partition, NOTHING).settles(number):
                # A dead letter of which another life has not told yet may be taken for a gap between two records.
                is_letter = name in self.buried and (self.kind == PARTITION or self.heard[name] not in self.tasks)
                assert name in self.acked or is_letter


OPS = [*["emit"] * 5, *["answer"] * 4, "die", "move", "tell", "tell"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_settled_was_acked_and_a_record_has_one_identity(kind: str, seed: int, tmp_path: Path) -> None:
    for life in range(30):
        rng, directory = random.Random(seed + life), tmp_path / str(life)
        directory.mkdir()
        spout = Spout(str(directory), kind)
        for _ in range(rng.randrange(100)):
            getattr(spout, rng.choice(OPS))(rng.randrange(2), rng.choice(PREFIXES), rng.randrange(1000))
        # Some records stay open for long: all others are settled around them.
        held = list(spout.open)[:3]
        for task, record in list(spout.open)[3:]:
            spout.answered(task, record)
        for _ in range(2):
            for number in range(8):
                spout.tell(number % 2, None, 0)
            settled, open_names = spout.settled(), {spout.name(*key) for key in spout.open}
            for name in spout.acked - spout.buried - open_names:
                partition, number = divmod(spout.numbers[name], 1 << NUMBER_BITS)
                assert settled[partition].settles(number) or spout.heard[name] not in spout.tasks
            for settling in spout.tasks:
                assert sum(len(partition.numbers) for partition in settling.partitions.values()) <= len(spout.open)
            for task, record in held * bool(spout.open):
                spout.answered(task, record)
        assert len(set(spout.numbers.values())) == len(spout.numbers)
        for settling in spout.tasks:
            settling.records.close()


def test_a_plain_spouts_positions_ascend_or_nothing_more_is_emitted(tmp_path: Path) -> None:
    first, other = Spout(str(tmp_path), TASK).tasks
    first.emitted(5, (), "default")
    first.emitted(9, (), "default")
    for life in (first, Spout(str(tmp_path), TASK).tasks[0]):
        with pytest.raises(ComponentError, match=r"emitted message id 7 .* and 9 before; .* which ascend"):
            life.emitted(7, (), "default")
    with pytest.raises(ComponentError, match=r"which ascend"):
        Spout(str(tmp_path), TASK).tasks[0].emitted(10, (), "default")
    other.emitted(10, (), "default")
    other.answered(10)
    with pytest.raises(ComponentError, match=r"or after its ack"):
        other.emitted(10, (), "default")


def test_ids_that_are_no_positions_are_open_until_their_answer_and_on_one_stream(tmp_path: Path) -> None:
    settling = Spout(str(tmp_path), TASK).tasks[0]
    ids: list[Any] = ["a", b"a", None, True, -1, 1 << NUMBER_BITS, ("a", "b"), (), 1.5, ["list"]]
    identities = [settling.emitted(message_id, ("value",), "one") for message_id in ids]
    assert not any(is_ordered(identity >> NUMBER_BITS) for identity in identities)
    assert len(set(identities)) == len(ids)
    settling.emitted(("file", 7), ("value",), "one")
    for message_id in [*ids, ("file", 7)]:
        with pytest.raises(ComponentError, match=r"on stream 'one' .* on stream 'other'.*an id of its own for each"):
            settling.emitted(message_id, ("value",), "other")
        assert settling.has_open
        settling.answered(message_id)
    assert not settling.has_open


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("message_id", [1, "a"])
def test_an_id_under_way_comes_again_with_its_values_or_after_a_failure(
    kind: str, message_id: Any, tmp_path: Path,
) -> None:
    settling = Spout(str(tmp_path), kind).tasks[0]
    identity = settling.emitted(message_id, ("one", [2]), "default")
    assert settling.emitted(message_id, ("one", [2]), "default") == identity
    settling.failed([message_id])
    settling.emitted(message_id, ("other",), "default")
    with pytest.raises(ComponentError, match=r"id .* as \('other',\) on .* as \('one',\) on"):
        settling.emitted(message_id, ("one",), "default")


def test_a_name_is_the_same_record_until_it_is_forgotten(tmp_path: Path) -> None:
    first, second = Spout(str(tmp_path), NAME).tasks
    first.expect(["a", "b"])
    identity = first.emitted("a", (), "default")
    assert second.emitted("a", (), "default") == identity != second.emitted("b", (), "default")
    second.records.tell("busy", forgotten=["a"])
    second.answered("a")
    assert second.emitted("a", (), "default") not in (identity, second.emitted("b", (), "default"))
    with pytest.raises(ComponentError, match=r"which cannot name a record .* expected a number, a text"):
        first.emitted(["list"], (), "default")


# ---- what is absorbed ----

BITS = 20
IDENTITY = st.builds(
    lambda partition, number, path: (partition << NUMBER_BITS | number) << BITS | path,
    st.sampled_from([0, 7, HASHED | 3]), st.integers(0, 6), st.integers(0, 2),
)
BATCHES = st.lists(st.one_of(
    st.tuples(st.just("batch"), st.lists(IDENTITY, min_size=1, max_size=6), st.integers(0, 1 << 12)),
    st.tuples(st.just("floor"), st.sampled_from([0, 7]), st.tuples(st.sampled_from([2, 7]), st.integers(0, 6))),
    st.tuples(st.sampled_from(["forget", "forget", "reopen"]), st.none(), st.none()),
), min_size=10, max_size=30)


class Memory:
    """What is absorbed, beside a model of it."""

    def __init__(self) -> None:
        self.floors: dict[int, Settled] = {}
        self.stored: dict[int, bytes] = {}
        self.model: dict[int, tuple[int, list[Any]]] = {}
        self.reopen()

    def settled(self, identity: int) -> bool:
        partition, number = divmod(identity >> BITS, 1 << NUMBER_BITS)
        return is_ordered(partition) and self.floors.get(partition, NOTHING).settles(number)

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
            taken = what if len(rows) == len(what) else [what[row] for row in rows]
            group = Group(self.its.next, taken, emitted)
            assert group.number not in self.stored
            self.stored[group.number] = group.packed()
            self.its.add(group)
            for place, row in enumerate(rows):
                made = [("words", None, (place, at)) for at, parent in enumerate(parents) if parent == place]
                self.model[what[row]] = group.number, made

    def floor(self, partition: int, risen: tuple[int, int]) -> None:
        before, (number, buried) = self.floors.get(partition, NOTHING), risen
        is_new = buried < number and buried not in before.ranges
        letters = [*before.buried, *[(buried, buried + 1)] * is_new]
        self.floors[partition] = Settled(Ranges([*before.ranges, (0, number)]), Ranges(letters))

    def forget(self, *_: None) -> None:
        change = self.its.forgettable()
        kept = {one for group in change.kept for one in group.identities}
        forgotten = {one for one, (number, _) in self.model.items() if number in change.numbers} - kept
        assert all(self.settled(one) for one in forgotten)
        self.its.forget(change)
        self.model = {one: its for one, its in self.model.items() if one not in forgotten}
        self.stored = {number: packed for number, packed in self.stored.items() if number not in change.numbers}
        self.stored |= {group.number: group.packed() for group in change.kept}

    def reopen(self, *_: None) -> None:
        self.its = Absorbed(BITS, self.floors)
        for number, packed in sorted(self.stored.items()):
            self.its.load(number, pickle.loads(packed))


@given(BATCHES)
def test_what_is_absorbed_is_known_until_it_is_settled(ops: list[Any]) -> None:
    with mock.patch.multiple(absorbed, GENERATION=4, _WHOLE=1):
        memory = Memory()
        for op, what, choice in ops:
            getattr(memory, op)(what, choice)
            assert len(memory.its) == len(memory.model)


@pytest.mark.parametrize("make", [partial(RecordStore, who="lines"), Queue])
def test_who_opens_a_new_file_at_once_with_others_opens_it(make: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in range(100):
            for opened in pool.map(make, [mkdtemp(dir=tmp_path)] * 8):
                opened.close()
