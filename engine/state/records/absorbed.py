"""What the state of a task has absorbed, and what was emitted for it: in groups, one for each commit.

Groups of one time are a generation, which is forgotten once all of its messages are settled. One that is held for long,
or a dead letter, would keep 16,384 others: so of a generation that is not settled as a whole, what is not is kept in a
group of its own, beside all generations, and the rest is forgotten.

Guarantees: a tuple that was absorbed is recognised until its message is settled, and after that by its message; what
was emitted for it is known until then. So memory holds what is open at the spouts and dead letters, and a little more.

Pure. Thread: the task's.
"""

from __future__ import annotations

import contextlib
import pickle
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall.engine.state.records.floors import NOTHING, Settled
from squall.engine.state.records.lineage import HASHED, NUMBER_BITS, Partition, is_ordered


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
    _places: dict[int, int] = field(default_factory=dict)
    _rows: dict[int, list[tuple[str, int | None, tuple[Any, ...]]]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """For `Absorbed.load`."""
        identities: Any = self.identities
        with contextlib.suppress(OverflowError):  # pickle takes ten times as long for numbers
            identities = array("Q", identities)
        return pickle.dumps((identities, [tuple(emitted) for emitted in self.emitted]), 5)

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

    def part(self, kept: set[int]) -> Group:
        """Return the part of it that has absorbed these tuples."""
        places = [place for place, identity in enumerate(self.identities) if identity in kept]
        place_of = {place: number for number, place in enumerate(places)}
        emitted = []
        for each in self.emitted:
            rows = [row for row, parent in enumerate(each.parents) if parent in place_of]
            parents = [place_of[each.parents[row]] for row in rows]
            emitted.append(each._replace(
                parents=parents, columns=tuple([column[row] for row in rows] for column in each.columns)
            ))
        return Group(self.number, [self.identities[place] for place in places], emitted)


_NUMBER = (1 << NUMBER_BITS) - 1
GENERATION = 16_384
"""Tuples after which the next generation begins: those of some ten milliseconds at full speed."""
_WHOLE = 4
"""Generations that may be settled as a whole soon; of an older one, what is not settled is kept apart."""
FRESH = Group(-1, (), ())
"""In place of a group: the tuple was not absorbed."""
SETTLED = Group(-2, (), ())
"""The message of the tuple is settled: nothing that it led to is needed any more."""
AGAIN = Group(-3, (), ())
"""The same tuple is in the batch already."""


Spans = list[tuple[Partition, int, int]]
"""Partition, and the lowest and the highest message of it."""


class Era:
    """Groups that are forgotten together."""

    __slots__ = ("groups", "identities", "lowest", "newest")

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.identities: set[int] = set()
        self.lowest: dict[Partition, int] = {}
        self.newest: dict[Partition, int] = {}
        """The lowest and the highest message of each partition."""

    def has_any(self, different: set[int], spans: Spans) -> bool:
        """Return True if one of these tuples was absorbed. Nearly always, all their messages are newer."""
        newest = self.newest
        if all(lowest > newest.get(partition, -1) for partition, lowest, _ in spans):
            return False
        return not self.identities.isdisjoint(different)

    def add(self, group: Group, different: set[int], spans: Spans) -> None:
        """Add a group with these tuples."""
        self.groups.append(group)
        self.identities |= different
        for partition, lowest, newest in spans:
            self.lowest[partition] = min(lowest, self.lowest.get(partition, lowest))
            self.newest[partition] = max(newest, self.newest.get(partition, newest))

    def is_settled(self, settled: Mapping[Partition, Settled]) -> bool:
        """Return True if every message is settled."""
        return all(
            settled.get(partition, NOTHING).settles_all(self.lowest[partition], newest)
            for partition, newest in self.newest.items()
        )

    def is_passed(self, settled: Mapping[Partition, Settled]) -> bool:
        """Return True if messages after all of these are settled: what is not settled of these is held, or given up."""
        return all(
            settled.get(partition, NOTHING).ranges.end > newest
            for partition, newest in self.newest.items() if is_ordered(partition)
        )


class Forgotten(NamedTuple):
    """What is forgotten with a commit."""

    numbers: Sequence[int] = ()
    """Of the groups that go."""
    kept: Sequence[Group] = ()
    """What is left of them, in their places."""


NOTHING_FORGOTTEN = Forgotten()


class Absorbed:
    """The groups of one task."""

    def __init__(self, path_bits: int, settled: Mapping[Partition, Settled]) -> None:
        """`settled`: whoever gave it keeps it current."""
        self._path_bits, self._settled = path_bits, settled
        self._generations = [Era()]
        self._apart = Era()
        """What is left of generations that were not settled as a whole."""
        self._apart_limit = GENERATION
        self.next = 0
        """The number of the next group."""
        self._looked_at: tuple[Sequence[int], set[int], Spans] = (), set(), []
        """The identities that came last, the different ones of them, and their spans."""

    def load(self, number: int, content: tuple[Any, ...]) -> None:
        """Take up a group that was stored, unpickled."""
        identities, emitted = content
        self.add(Group(number, list(identities), [Emitted(*each) for each in emitted]))

    def add(self, group: Group) -> None:
        """Note that a group is stored."""
        if len(self._generations[-1].identities) >= GENERATION:
            self._generations.append(Era())
        self._generations[-1].add(group, *self._look_at(group.identities))
        self.next = max(self.next, group.number + 1)

    def _look_at(self, identities: Sequence[int]) -> tuple[set[int], Spans]:
        """Return the different ones of tuples, and the lowest and the highest message of each partition among them."""
        if identities is self._looked_at[0]:
            return self._looked_at[1:]
        shift, ordered = self._path_bits, sorted(identities)
        spans, begin = Spans(), 0
        while begin < len(ordered):
            partition = ordered[begin] >> NUMBER_BITS + shift
            if not is_ordered(partition):  # hashes, which come after all partitions
                spans.append((HASHED, -1, _NUMBER))
                break
            end = bisect_left(ordered, partition + 1 << NUMBER_BITS + shift, begin)
            spans.append((partition, ordered[begin] >> shift & _NUMBER, ordered[end - 1] >> shift & _NUMBER))
            begin = end
        self._looked_at = identities, set(identities), spans
        return self._looked_at[1:]

    def known(self, identities: Sequence[int]) -> list[Group] | None:
        """What is known of each tuple: its group, FRESH, SETTLED or AGAIN; None if all are fresh."""
        settled, (different, spans) = self._settled, self._look_at(identities)
        if not (
            len(different) < len(identities)
            or any(settled.get(part, NOTHING).ranges.meets(lowest, newest) for part, lowest, newest in spans)
            or any(each.has_any(different, spans) for each in self._all())
        ):
            return None
        seen: set[int] = set()
        known = []
        for identity in identities:
            group = self.group_of(identity)
            if group is FRESH:
                group = SETTLED if self._is_settled(identity) else AGAIN if identity in seen else FRESH
                seen.add(identity)
            known.append(group)
        return known

    def _all(self) -> Sequence[Era]:
        return (*self._generations, self._apart) if self._apart.groups else self._generations

    def _is_settled(self, identity: int) -> bool:
        partition, number = divmod(identity >> self._path_bits, 1 << NUMBER_BITS)
        return is_ordered(partition) and self._settled.get(partition, NOTHING).settles(number)

    def group_of(self, identity: int) -> Group:
        """The group that has absorbed a tuple; FRESH if there is none."""
        for generation in self._all():
            if identity in generation.identities:
                return next(group for group in generation.groups if group.has(identity))
        return FRESH

    def forgettable(self) -> Forgotten:
        """Return what is needed no longer: generations of which every message is settled, and of an old one all that
        is settled."""
        gone = [number for each in self._generations if each.groups and each.is_settled(self._settled)
                for number in (group.number for group in each.groups)]
        if gone:
            return Forgotten(gone)
        if len(self._apart.identities) >= self._apart_limit:
            return self._rest_of(self._apart)
        if len(self._generations) > _WHOLE:
            for generation in self._generations[:-_WHOLE]:
                if generation.is_passed(self._settled):
                    return self._rest_of(generation)
        return NOTHING_FORGOTTEN

    def _rest_of(self, generation: Era) -> Forgotten:
        unsettled = {identity for identity in generation.identities if not self._is_settled(identity)}
        parts = [group.part(unsettled) for group in generation.groups]
        return Forgotten([group.number for group in generation.groups], [part for part in parts if part.identities])

    def forget(self, change: Forgotten) -> None:
        """Carry out a change, which is stored."""
        if not change.numbers:
            return
        gone = set(change.numbers)
        if self._apart.groups and self._apart.groups[0].number in gone:
            self._apart = Era()
        else:
            rest = [each for each in self._generations if not each.groups or each.groups[0].number not in gone]
            self._generations = rest or [Era()]
        for group in change.kept:
            self._apart.add(group, *self._look_at(group.identities))
        if change.kept:
            self._apart_limit = max(GENERATION, 2 * len(self._apart.identities))

    def unsettled_count(self, settled: Mapping[Partition, Settled]) -> int:
        """Return how many tuples there are whose messages are not settled."""
        self._settled = settled
        return sum(not self._is_settled(identity) for each in self._all() for identity in each.identities)

    def __len__(self) -> int:
        """Tuples that are remembered."""
        return sum(len(generation.identities) for generation in self._all())
