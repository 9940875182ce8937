"""Which records of a spout are settled: acked, and so in every state behind it. What one task of a spout knows of them.

::

    partition   0 ──────────── floor ────┬─ hole ─┬──────► newest
                all settled      │       held, or a dead letter
                                 ▼
                     lowest record under way

A partition is what a source calls so (a partition of Kafka, a file, a queue), and a number names a record in it,
whichever task reads it. What is settled of it is a set of numbers, kept as ranges (`engine.state.records.ranges`): a
record that is held for long, or became a dead letter, is a hole, and holds up nothing else. So what is remembered is
bounded by what is open and by dead letters.

A source that reads in order may leave numbers out, such as offsets in bytes. What lies between two records that it read
one after the other is settled with the second one: it can never come.

Guarantees: a number is settled only if its record was acked, or cannot come.

Pure. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from squall.engine.errors import ComponentError
from squall.engine.foreign.identity import digest_of, key_of
from squall.engine.foreign.text import repr_of
from squall.engine.state.records.lineage import NUMBER_BITS, PartitionNumbers, origin_of, position_of
from squall.engine.state.records.record_store import PartitionProgress, Reading, RecordStore

TASK, PARTITION, DENSE, NAME = "task", "partition", "dense", "name"
"""Values of `Spout.record_identity`."""
NAMES = ("\0names",)
"""The partition of records that have names; a number is given to each as it comes."""
HELD_NS = 1_000_000_000
"""A record that is the lowest one open for so long is held: what is above it is settled without it."""
_ACKED, _BURIED = None, False
"""In place of the stream and values of a record that is open."""


class ReadPartition:
    """A partition that this life of a task reads."""

    __slots__ = (
        "ascends", "at", "base", "begun", "covers", "floor", "gaps", "held_since", "newest", "number", "numbers",
        "told",
    )

    def __init__(self, number: int, base: int, floor: int, covers: bool) -> None:
        self.number, self.base, self.floor, self.covers = number, base, floor, covers
        """`floor`: all below it was settled before this life, which may read from further back. `covers`: it is read in
        order, so what lies between two records is settled with the second."""
        self.begun = self.newest = self.at = -1
        """The number at which this life began, the highest, and the last one that it has read."""
        self.numbers: dict[int, tuple[str, Any] | bool | None] = {}
        """The records that are not settled yet, in the order of reading -> stream and values, or what became."""
        self.gaps: dict[int, int] = {}
        """Of those of them that do not follow the one that was read before: that one. In between there is none."""
        self.ascends = True
        """True if these numbers ascend. If not, one between two of them may have been read again, and be open."""
        self.held_since = (-1, 0)
        """The first of them when it was last looked at, and since when it is the first."""
        self.told: tuple[int, ...] = ()

    @property
    def lowest_open(self) -> int:
        """Return the lowest number that is open; -1 if none is."""
        numbers = (number for number, fate in self.numbers.items() if fate.__class__ is tuple)
        return next(numbers, -1) if self.ascends else min(numbers, default=-1)

    def settle(self, now_ns: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Take off what is settled since the last call; return its ranges, and the dead letters in them."""
        numbers, is_held = self.numbers, False
        done = list(takewhile(lambda number: numbers[number].__class__ is not tuple, numbers))
        if len(done) < len(numbers):
            first = next(islice(numbers, len(done), None))
            if first != self.held_since[0]:
                self.held_since = first, now_ns
            elif now_ns - self.held_since[1] >= HELD_NS:
                is_held, done = True, [number for number, fate in numbers.items() if fate.__class__ is not tuple]
        if not done:
            return [], []
        buried = [number for number in done if numbers[number] is _BURIED]
        if not is_held and self.ascends and (self.covers or done[-1] - done[0] == len(done) - 1):
            ranges = [(self.gaps.get(done[0], done[0] - 1) + 1, done[-1] + 1)]
        else:
            ranges = [(self.gaps.get(number, number - 1) + 1, number + 1) for number in done]
        if len(done) == len(numbers):
            numbers.clear()
            self.ascends = True
        else:
            for number in done:
                del numbers[number]
        if self.gaps:
            self.gaps = {number: before for number, before in self.gaps.items() if number in numbers}
        return ranges, buried


class Settling:
    """Follows the records of one spout task from their emits to their acks."""

    def __init__(
        self, who: str, kind: str, task_index: int, numbers: PartitionNumbers, records: RecordStore
    ) -> None:
        """`kind`: the spout's `record_identity`; `numbers`: of its partitions in the topology; `records`: where all
        tasks of the spout keep the numbers of partitions and names."""
        self.records = records
        self._who, self._kind, self._index, self._numbers = who, kind, task_index, numbers
        self.partitions: dict[tuple[Any, ...], ReadPartition] = {}
        """By what message ids begin with."""
        self._named: dict[Any, int] = {}
        """Numbers of the records with names that are open."""
        self._open = 0
        self.emits = 0
        """Emits so far, but for replays."""
        self._others: dict[Any, tuple[str, Any]] = {}
        """The open records of a plain spout whose ids are no positions -> their stream and values."""
        self._failed: set[Any] = set()
        """Keys of the open records that failed and were not emitted since: these may come with other values."""

    def readings(self, declared: Mapping[tuple[Any, ...], bool]) -> dict[int, Reading]:
        """Return how far the task is in partitions that it reads, by their numbers. `declared`: by what message ids
        begin with, whether everything there is has been read."""
        named = self._kind == NAME or (NAMES in self.partitions and () not in self.partitions)
        readings: dict[int, Reading] = {}
        for prefix, is_read in declared.items():
            prefix = NAMES if named and prefix == () else prefix
            its = self.partitions.get(prefix)
            at, lowest = (-1, -1) if its is None else (its.at if its.covers else -1, its.lowest_open)
            readings[self.number_of(prefix)] = Reading(at, is_read, lowest)
        return readings

    def name_of(self, prefix: tuple[Any, ...]) -> str:
        """Return the name of a partition among those of the spout."""
        return f"{self._index} {prefix!r}" if self._kind == TASK else repr(prefix)

    def number_of(self, prefix: tuple[Any, ...]) -> int:
        """Return the number of a partition, of which nothing may have been read yet."""
        its = self.partitions.get(prefix)
        return self.records.partition(self.name_of(prefix))[0] if its is None else its.number

    def _partition(self, prefix: tuple[Any, ...]) -> ReadPartition:
        number, begun, why = self.records.partition(self.name_of(prefix))
        if why:
            raise ComponentError(why)
        base = self._numbers.partition(number) << NUMBER_BITS
        covers = self._kind in (TASK, PARTITION) and prefix != NAMES
        self.partitions[prefix] = partition = ReadPartition(number, base, begun, covers)
        return partition

    def emitted(self, message_id: Any, values: Any, stream: str) -> int:
        """Note an emit; return partition and number of the record, as one. ComponentError if it is under way with other
        values, or, of a plain spout, its position is below another's, of which it is no replay."""
        if self._kind == NAME or (number := position_of(message_id)) is None:
            return self._emitted_name(message_id, values, stream)
        prefix = message_id[:-1] if message_id.__class__ is tuple else ()
        its = self.partitions.get(prefix) or self._partition(prefix)
        return self._note(its, number, message_id, (stream, values))

    def _note(self, its: ReadPartition, number: int, message_id: Any, emit: tuple[str, Any]) -> int:
        numbers = its.numbers
        if number > its.newest:
            its.newest = number
            if its.begun < 0:
                its.begun = number
            elif number - its.at > 1:  # else it follows the one before, as most do
                its.ascends = its.ascends and (number > its.at or not numbers)
                if its.covers:
                    its.gaps[number] = its.at
        else:
            known = numbers.get(number)
            if known.__class__ is tuple:
                self._check_again(message_id, known, emit)
                numbers[number] = emit
                return its.base | number
            is_new = self._kind == TASK and number >= its.floor and known is None
            if is_new and not self.records.is_buried(its.number, number):
                raise self._out_of_order(its, message_id)
            # It is read again, from further back.
            numbers.pop(number, None)
            its.ascends = not numbers
            its.begun = min(its.begun, number)
            if its.covers and -1 < its.at < number - 1:
                its.gaps[number] = its.at
        numbers[number] = emit
        its.at = number
        self._open += 1
        self.emits += 1
        return its.base | number

    def _emitted_name(self, message_id: Any, values: Any, stream: str) -> int:
        if self._kind == TASK:
            key = key_of(message_id)
            self._check_again(message_id, self._others.setdefault(key, (stream, values)), (stream, values))
            self._others[key] = stream, values
            self.emits += 1
            return origin_of(message_id, (stream, *values))
        if key_of(message_id) is not message_id:
            raise ComponentError(
                f"{self._who} emitted message id {repr_of(message_id)}, which cannot name a record before state that "
                "counts exactly once; expected a number, a text, bytes, a date or a tuple of these"
            )
        its = self.partitions.get(NAMES) or self._partition(NAMES)
        if message_id not in self._named:
            self._named[message_id] = self.records.numbers([message_id])[0]
        return self._note(its, self._named[message_id], message_id, (stream, values))

    def expect(self, message_ids: Sequence[Any]) -> None:
        """Have names numbered together, in one commit: these ids are about to be emitted."""
        if self._kind != TASK:
            all_named = self._kind == NAME
            names = [one for one in message_ids if (all_named or position_of(one) is None) and key_of(one) is one]
            if names := [name for name in names if name not in self._named]:
                self._named.update(zip(names, self.records.numbers(names), strict=True))

    def _check_again(self, message_id: Any, known: Any, emit: tuple[str, Any]) -> None:
        (one, values), (other, again), key = known, emit, key_of(message_id)
        is_same = key in self._failed or values is again or digest_of(values) == digest_of(again)
        self._failed.discard(key)
        if one != other or not is_same:
            raise ComponentError(
                f"{self._who} emitted message id {repr_of(message_id)} as {repr_of(values)} on stream {one!r} and, "
                f"before its ack, as {repr_of(again)} on stream {other!r}; before state that counts exactly once, "
                "expected an id of its own for each emit"
            )

    def _out_of_order(self, its: ReadPartition, message_id: Any) -> ComponentError:
        # Stored, because a later life would take it for settled: it lies between two that are.
        why = (
            f"{self._who} emitted message id {repr_of(message_id)} for the first time, or after its ack, and "
            f"{its.newest} before; ids that end with a whole number are positions, which ascend before state that "
            "counts exactly once; expected ascending numbers, or ids that are text"
        )
        self.records.break_off(its.number, why)
        return ComponentError(why)

    def failed(self, message_ids: Sequence[Any]) -> None:
        """Note that records failed: the next emit of each may have other values (`ReplayingSpout.replace`)."""
        self._failed.update(map(key_of, message_ids))

    def answered(self, message_id: Any, buried: bool = False) -> None:
        """Note that a record was acked, or given up."""
        if self._failed:
            self._failed.discard(key_of(message_id))
        number = None if self._kind == NAME else position_of(message_id)
        if number is not None:
            its = self.partitions.get(message_id[:-1] if message_id.__class__ is tuple else ())
        elif self._kind == TASK:
            self._others.pop(key_of(message_id), None)
            return
        else:
            number, its = self._named.pop(message_id, -1), self.partitions.get(NAMES)
        if its is not None and its.numbers.get(number).__class__ is tuple:
            its.numbers[number] = _BURIED if buried else _ACKED
            self._open -= 1

    @property
    def has_open(self) -> bool:
        """Return True if a record is not answered."""
        return self._open > 0 or bool(self._others)

    def progress(self, now_ns: int) -> Iterator[PartitionProgress]:
        """Tell of each partition whatever has changed since the last call."""
        for its in self.partitions.values():
            ranges, buried = its.settle(now_ns)
            told = its.begun, its.newest
            if ranges or told != its.told:
                its.told = told
                yield PartitionProgress(its.number, ranges, buried, its.begun if its.covers else 0, its.newest)
