"""Identities of tuples: numbers that a replay repeats, so that state can absorb each tuple once.

An identity is one integer, of three parts::

    partition │ number, 40 bits │ path, 20 bits for each bolt on the longest way

Partition and number are those of the message, the path leads from its spout to the tuple: a digit for each bolt on the
way, which is the number of the emit among those that the bolt made from one tuple, counted from 1. For example, of
message 7 that `split` turns into words::

    1 │ 7 │ 0      the line        1 │ 7 │ 1    1 │ 7 │ 2    ...      its words

The number of an emit counts through all streams and tasks. Where a bolt reads several components, each of these has
its own share of the numbers, so that their tuples differ; and where each task of a bolt gets a copy of a tuple, each
task has.

A message id that is a whole number, or a tuple that ends with one, such as (file, offset), is a *position*: its other
parts and the spout make the partition, so the number names a record whichever task reads it. `Spout.record_identity`
says what else a spout's ids may be: positions of one task only, or names, to which numbers are given
(`engine.state.records.record_store`). A plain spout's id that is no position is hashed to 64 bits, above all
partitions.

Guarantees: tuples of one message have different identities; those of different messages too, but for a chance of 2^-64
among hashed ids. Most identities fit 64 bits.

Pure. Thread: any.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.stream import Stream
from squall.engine.api.tuple import TupleSource
from squall.engine.errors import ComponentError
from squall.engine.foreign.identity import key_of

RESULTS = ".results"
"""Ends the name of the spout that emits what a bolt with windows has made of them."""
FIELD = "__id"
"""The field that carries identities; it is the last one of its stream."""
HOP_BITS, NUMBER_BITS = 20, 40
_NUMBERS = 1 << NUMBER_BITS
DIGIT = (1 << HOP_BITS) - 1
"""What moves a path by a digit: so many times the path is added."""
Partition = int
HASHED = 1 << 24
"""Partitions that hold positions; above are parts of hashes."""


def hash64(value: Any) -> int:
    """Hash what is its own key (`engine.foreign.identity`): the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def position_of(message_id: Any) -> int | None:
    """The number of a message within its partition; None if its id is no position."""
    number = message_id[-1] if type(message_id) is tuple and message_id else message_id
    return number if type(number) is int and 0 <= number < _NUMBERS else None


def origin_of(message_id: Any, values: Any) -> int:
    """Partition and number in one, of a message whose id is no position."""
    return HASHED << NUMBER_BITS | hash64(key_of(message_id, values))


def is_ordered(partition: Partition) -> bool:
    """Return False if this is a part of a hash, in the place of a partition."""
    return partition < HASHED


class PartitionNumbers(NamedTuple):
    """Numbers the partitions of one spout of a topology: `first`, `first + step` and so on."""

    first: int
    """The spout's number among those of the topology."""
    step: int
    """How many there are."""

    def partition(self, local: int) -> Partition:
        """The number in the topology of a partition that is number 0, 1, 2 ... of the spout's."""
        return self.first + local * self.step


@dataclass(frozen=True)
class Lineage:
    """How one component of a topology carries identities on."""

    component: str
    path_bits: int
    """Bits of a path: the same in the whole topology."""
    carried: Mapping[str, Stream]
    """Its streams with identities, as the user declared them."""
    kind: int = 0
    """The share of the numbers that is this component's, of `kinds`."""
    kinds: int = 1
    copied: frozenset[tuple[str, str]] = frozenset()
    """The inputs (component, stream) of which each of its tasks gets a copy."""
    tasks: int = 1
    """Number of its tasks if there are such inputs, else 1."""
    multiplied: bool = False
    """True if its tuples come from bolts, so that their paths have digits."""

    @property
    def step(self) -> int:
        """Distance of the identities of two emits."""
        return self.kinds * self.tasks

    @property
    def most(self) -> int:
        """Most emits that one tuple may lead to."""
        return DIGIT // self.step

    def first(self, source: TupleSource, index: int) -> int:
        """The digit of the first emit from a tuple of this source in the task of this index."""
        task = index if (source.component, source.stream) in self.copied else 0
        return 1 + self.kind + task * self.kinds

    @property
    def path_mask(self) -> int:
        """Of an identity of its input: the digits of the path, to which it adds one."""
        return (1 << self.path_bits) - 1 if self.multiplied else 0

    def bases_of(self, identities: Sequence[int], first: int) -> list[int]:
        """The identity of the first emit from each of several tuples."""
        mask = self.path_mask
        return [identity + (identity & mask) * DIGIT + first for identity in identities]

    def children_of(self, firsts: list[int], counts: list[int]) -> list[int]:
        """The identities of so many emits from each of several tuples, in their order."""
        step = self.step
        if counts.count(1) == len(counts):
            return firsts
        if max(counts) > self.most:
            raise self.too_many(max(counts))
        return list(chain.from_iterable(
            (first,) if count == 1 else range(first, first + count * step, step)
            for first, count in zip(firsts, counts, strict=True)
        ))

    def loose(self) -> int:
        """Make the identity of a tuple that no replay repeats: of what a tick leads to."""
        return (HASHED << NUMBER_BITS | int.from_bytes(os.urandom(8))) << self.path_bits

    def too_many(self, count: int) -> ComponentError:
        """The error of a tuple with too many emits."""
        return ComponentError(
            f"{self.component} emitted {count:,} tuples from one; before state that counts exactly once, allowed: "
            f"{self.most:,}"
        )


def has_identity(fields: tuple[str, ...]) -> bool:
    """Return True if tuples with these fields have one."""
    return fields[-1:] == (FIELD,)


def plain_outputs(outputs: Mapping[str, Stream]) -> dict[str, Stream]:
    """Streams without the field of identities."""
    return {
        name: Stream(*shape.fields[:-1], direct=shape.direct) if has_identity(shape.fields) else shape
        for name, shape in outputs.items()
    }


class Children:
    """The identities of what is emitted from the rows of one batch.

    The emits of a row are numbered in their order, over all calls and streams, whatever else is in the batch."""

    __slots__ = ("_first", "_identities", "_lineage", "_used")

    def __init__(self, lineage: Lineage, identities: Sequence[int], first: int) -> None:
        """`first`: the digit of the first emit (`Lineage.first`)."""
        self._lineage, self._identities, self._first = lineage, identities, first
        self._used: list[int] = []
        """Emits of each row so far; empty if there are none."""

    @classmethod
    def of_batch(cls, lineage: Lineage, batch: ColumnBatch, identities: Sequence[int] | None, index: int) -> Children:
        """Of a plain batch in the task of this index. `identities`: None of ticks: what these emit is not repeated."""
        if identities is None:
            return cls(lineage, [lineage.loose() for _ in range(len(batch))], 1)
        return cls(lineage, identities, lineage.first(batch._source, index))

    def drop(self) -> None:
        """Begin the numbers anew."""
        self._used = []

    def of(self, parents: Sequence[int], in_order: bool) -> list[int]:
        """The identities of emits from these rows; `in_order`: all emits of a row are next to one another."""
        identities, used, lineage = self._identities, self._used, self._lineage
        if not used and in_order:
            counts = [0] * len(identities)
            for parent in parents:
                counts[parent] += 1
            self._used = counts
            return lineage.children_of(lineage.bases_of(identities, self._first), counts)
        if not used:
            used = self._used = [0] * len(identities)
        firsts, step, made = lineage.bases_of(identities, self._first), lineage.step, []
        for parent in parents:
            made.append(firsts[parent] + used[parent] * step)
            used[parent] += 1
        if max(used, default=0) > lineage.most:
            raise lineage.too_many(max(used))
        return made
