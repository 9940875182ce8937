"""What the state of a task has absorbed, and what was emitted for it: in groups, one for each commit.

Guarantees: a tuple that was absorbed is recognised until its message is settled, and after that by its message; what
was emitted for it is known until then. So memory holds what is open at the spouts, and a little more.

Pure. Thread: the task's.
"""

from __future__ import annotations

import contextlib
import pickle
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall.engine.state.lineage import NUMBER_BITS, Partition, is_ordered
from squall.engine.state.settled import NO_FLOOR, Floor


class Emitted(NamedTuple):
    """Rows that were emitted to one stream."""

    stream: str
    task: int | None
    """The task of a direct stream."""
    parents: Sequence[int]
    """Of each row, the place of the tuple that it was made from: in the batch, or in its group."""
    columns: tuple[Sequence[Any], ...]


@dataclass(slots=True)
class Group:
    """What one commit has absorbed."""

    number: int
    identities: Sequence[int]
    emitted: Sequence[Emitted]
    newest: Mapping[Partition, int]
    """The highest message of each partition."""
    _places: dict[int, int] = field(default_factory=dict)
    _rows: dict[int, list[tuple[str, int | None, tuple[Any, ...]]]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """For `Absorbed.load`."""
        identities: Any = self.identities
        with contextlib.suppress(OverflowError):  # pickle takes ten times as long for numbers
            identities = array("Q", identities)
        return pickle.dumps((identities, [tuple(emitted) for emitted in self.emitted], dict(self.newest)), 5)

    def has(self, identity: int) -> bool:
        """Return True if it has absorbed a tuple."""
        if not self._places:
            self._places = {identity: place for place, identity in enumerate(self.identities)}
        return identity in self._places

    def emitted_for(self, identity: int) -> list[tuple[str, int | None, tuple[Any, ...]]]:
        """Stream, task and values of each emit that was made from a tuple."""
        if self.has(identity) and not self._rows:
            for stream, task, parents, columns in self.emitted:
                for place, row in zip(parents, zip(*columns, strict=True), strict=True):
                    self._rows.setdefault(place, []).append((stream, task, row))
        return self._rows.get(self._places[identity], [])


_NUMBER = (1 << NUMBER_BITS) - 1
GENERATION = 16_384
"""Tuples after which the next generation begins: those of some ten milliseconds at full speed."""
FRESH = Group(-1, (), (), {})
"""In place of a group: the tuple was not absorbed."""
SETTLED = Group(-2, (), (), {})
"""The message of the tuple is settled: nothing that it led to is needed any more."""
AGAIN = Group(-3, (), (), {})
"""The same tuple is in the batch already."""


Spans = list[tuple[Partition, int, int]]
"""Partition, and the lowest and the highest message of it."""


class _Generation:
    """Groups that are forgotten together."""

    __slots__ = ("groups", "identities", "newest")

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.identities: set[int] = set()
        self.newest: dict[Partition, int] = {}
        """The highest message of each partition."""

    def has_any(self, different: set[int], spans: Spans) -> bool:
        """Return True if one of these tuples was absorbed. Nearly always, all their messages are newer."""
        newest = self.newest
        if all(lowest > newest.get(partition, -1) for partition, lowest, _ in spans):
            return False
        return not self.identities.isdisjoint(different)

    def add(self, group: Group, different: set[int]) -> None:
        """Add a group with these tuples."""
        self.groups.append(group)
        self.identities |= different
        for partition, newest in group.newest.items():
            self.newest[partition] = max(newest, self.newest.get(partition, 0))


class Absorbed:
    """The groups of one task."""

    def __init__(self, path_bits: int, floors: Mapping[Partition, Floor]) -> None:
        """`floors`: what is settled; whoever gave them keeps them current."""
        self._path_bits, self._floors = path_bits, floors
        self._generations = [_Generation()]
        self._next = 0
        self._spans: Spans = []
        self._different: set[int] = set()
        """Of the identities that were looked at last."""

    def load(self, number: int, content: tuple[Any, ...]) -> None:
        """Take up a group that was stored, unpickled."""
        identities, emitted, newest = content
        self.take(Group(number, list(identities), [Emitted(*each) for each in emitted], newest), set(identities))

    def add(self, group: Group) -> None:
        """Note that a group is stored, of those that `new_group` made last."""
        self.take(group, self._different)

    def take(self, group: Group, different: set[int]) -> None:
        """Note a group, of these tuples."""
        if len(self._generations[-1].identities) >= GENERATION:
            self._generations.append(_Generation())
        self._generations[-1].add(group, different)
        self._next = max(self._next, group.number + 1)

    def _look_at(self, identities: Sequence[int]) -> set[int]:
        """Find the lowest and the highest message of each partition among tuples; return their different ones."""
        shift, ordered = self._path_bits, sorted(identities)
        self._spans, begin = [], 0
        while begin < len(ordered):
            partition = ordered[begin] >> NUMBER_BITS + shift
            end = bisect_left(ordered, partition + 1 << NUMBER_BITS + shift, begin)
            self._spans.append((partition, ordered[begin] >> shift & _NUMBER, ordered[end - 1] >> shift & _NUMBER))
            begin = end
        self._different = set(identities)
        return self._different

    def known(self, identities: Sequence[int]) -> list[Group] | None:
        """What is known of each tuple: its group, FRESH, SETTLED or AGAIN; None if all are fresh."""
        floors, different = self._floors, self._look_at(identities)
        if not (
            len(different) < len(identities)
            or any(lowest < floors.get(partition, NO_FLOOR).number for partition, lowest, _ in self._spans)
            or any(each.has_any(different, self._spans) for each in self._generations)
        ):
            return None
        seen: set[int] = set()
        found = []
        for identity in identities:
            group = self.group_of(identity)
            if group is FRESH:
                partition, number = divmod(identity >> self._path_bits, 1 << NUMBER_BITS)
                settled = floors.get(partition, NO_FLOOR).settles(number)
                group = SETTLED if settled else AGAIN if identity in seen else FRESH
                seen.add(identity)
            found.append(group)
        return found

    def group_of(self, identity: int) -> Group:
        """The group that has absorbed a tuple; FRESH if there is none."""
        for generation in self._generations:
            if identity in generation.identities:
                return next(group for group in generation.groups if group.has(identity))
        return FRESH

    def new_group(self, identities: Sequence[int], emitted: Sequence[Emitted], same: bool) -> Group:
        """Make a group, which is to be stored, and then to be added. `same`: these were looked at last."""
        if not same:
            self._look_at(identities)
        return Group(self._next, identities, emitted, {partition: newest for partition, _, newest in self._spans})

    def forgettable(self) -> list[int]:
        """Numbers of the groups that are needed no longer: of generations of which every message is settled."""
        settled = [each for each in self._generations if each.groups and self._is_settled(each)]
        return [group.number for each in settled for group in each.groups]

    def _is_settled(self, generation: _Generation) -> bool:
        floors = self._floors
        for partition, newest in generation.newest.items():
            floor = floors.get(partition, NO_FLOOR)
            if newest >= floor.number or not is_ordered(partition):
                return False
            if floor.buried:
                numbers = (partition << NUMBER_BITS | number for number in floor.buried)
                messages = {identity >> self._path_bits for identity in generation.identities}
                if not messages.isdisjoint(numbers):
                    return False
        return True

    def forget(self, numbers: Collection[int]) -> None:
        """Drop groups that were forgettable."""
        if numbers:
            gone = set(numbers)
            left = [each for each in self._generations if not each.groups or each.groups[0].number not in gone]
            self._generations = left or [_Generation()]

    def __len__(self) -> int:
        """Tuples that are remembered."""
        return sum(len(generation.identities) for generation in self._generations)
