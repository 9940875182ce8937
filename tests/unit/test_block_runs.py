"""Blocks of trees: runs of rows that are tracked as one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, compress, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.engine.flow.anchoring import BlockAnchoring, Owned, anchoring_of
from squall.engine.flow.batch import BlockBatch, OpenBatch
from squall.engine.flow.ids import ACKER_BITS, Block, EdgeIds
from squall.engine.flow.member_columns import (
    RowCounts,
    column_of,
    flagged,
    flags_at,
    only_flagged,
    words_at,
    words_of,
    zero_words,
)
from squall.engine.flow.parcel import Parcel
from squall.engine.tracking.blocks import TrackedBlock
from squall.ipc import codec

ELSEWHERE = 4
"""Bit of the worker of task 2; task 1 is here."""
TASKS = {1: 0, 2: ELSEWHERE}
Said = dict[int, tuple[int, int]]
"""Row -> (root, edge)."""


def counts_of(rng: random.Random, members: int) -> list[int]:
    """Rows of each member: none of most, one of each, or a few."""
    most = rng.choice([(0, 0, 0, 1), (1,), (0, 1, 2, 5)])
    found = [rng.choice(most) for _ in range(members)]
    found[rng.randrange(members)] += 1
    return found


def cases(seed: int) -> Iterator[tuple[random.Random, list[int]]]:
    rng = random.Random(seed)
    for _ in range(50):
        yield rng, counts_of(rng, rng.randint(4, 40))


def entered(counts: list[int], target: int = 2) -> tuple[BlockBatch, BlockAnchoring]:
    """A batch of rows, so many of each member of a block; the anchoring that gave it its edges."""
    members, rows = range(len(counts)), [(number,) for number in range(sum(counts))]
    anchoring = BlockAnchoring(Block(5 << ACKER_BITS | 3, len(counts)), members)
    instead_of = OpenBatch(0, "default", target, TASKS)
    batch = anchoring.batch_of(rows, Owned(members, RowCounts(counts)), instead_of, TASKS[target], EdgeIds())
    assert isinstance(batch, BlockBatch)
    return batch, anchoring


def said(batch: BlockBatch) -> Said:
    """Tree and edge of each row, as lists tell them."""
    ends = [*batch.starts[1:], len(batch.rows)]
    return {
        row: (root, edge)
        for root, edge, begin, end in zip(batch.roots, batch.edges, batch.starts, ends, strict=True)
        for row in range(begin, end)
    }


def test_each_row_belongs_to_its_member_and_each_member_with_rows_has_one_edge(seed: int) -> None:
    for _, counts in cases(seed):
        batch, anchoring = entered(counts)
        owners = [member for member, count in enumerate(counts) for _ in range(count)]
        rows = said(batch)
        assert [root for root, _ in rows.values()] == batch.block.roots(owners)
        edges = dict(rows.values())
        assert len(set(edges.values())) == len(edges) == len(batch.edges)
        told = words_of(anchoring.new_edges(), len(counts))
        every = batch.block.roots(range(len(counts)))
        assert list(told) == [edges.get(root, 0) for root in every]
        assert anchoring.flags() == {
            ELSEWHERE: sum(1 << 8 * member for member, count in enumerate(counts) if count)
        }


def test_a_batch_that_is_sent_arrives_with_the_same_runs(seed: int) -> None:
    for _, counts in cases(seed):
        batch, _ = entered(counts)
        parcel = Parcel()
        parcel.batches.append(batch)
        [came] = codec.decode(codec.encode(parcel)[0]).batches
        assert isinstance(came, BlockBatch)
        assert (came.block, list(came.trees), said(came)) == (batch.block, list(batch.trees), said(batch))


def test_parts_of_a_batch_are_acked_as_the_whole(seed: int) -> None:
    for rng, counts in cases(seed):
        batch, anchoring = entered(counts)
        total = len(batch.rows)
        cuts = sorted(rng.sample(range(1, total), rng.randint(0, min(3, total - 1))))
        ids, parts, rest = EdgeIds(), [], batch
        for begin, end in pairwise([0, *cuts]):
            parts.append(rest.split(end - begin, ids.next))
        parts.append(rest)
        assert [len(list(part.run_rows.owners())) for part in parts] == [len(part.rows) for part in parts]
        assert [row for part in parts for row in part.rows] == [(number,) for number in range(total)]
        owners = [root for part in parts for root, _ in said(part).values()]
        assert owners == batch.block.roots(member for member, count in enumerate(counts) for _ in range(count))
        acked = 0
        for part in parts:
            again = anchoring_of(part)
            assert isinstance(again, BlockAnchoring)
            acked ^= again.acks_of(part, ())
        assert acked == anchoring.new_edges()


@given(st.lists(st.integers(0, 3), min_size=1), st.randoms(use_true_random=False))
def test_columns_are_the_words_and_flags_of_each_member(words: list[int], chance: random.Random) -> None:
    count, column, is_set = len(words), column_of(words), bytes(map(bool, words))
    assert only_flagged(column_of([7] * count), is_set) == column_of([7 * flag for flag in is_set])
    assert flagged(zero_words(column, count), count) == [member for member, word in enumerate(words) if not word]
    for members in (range(2, 2 + count), chance.choices(range(count), k=count)):
        expected = [0] * (count + 2)
        for member, word in zip(members, words, strict=True):
            expected[member] ^= word
        assert list(words_of(words_at(members, column, count + 2), count + 2)) == expected
        flags = flags_at(members, int.from_bytes(is_set, "little"), count + 2)
        assert flagged(flags, count + 2) == sorted(set(compress(members, is_set)))


@given(st.lists(st.integers(0, 5) | st.sampled_from([255, 256]), max_size=40), st.randoms(use_true_random=False))
def test_counts_and_ends_tell_the_same(counts: list[int], chance: random.Random) -> None:
    ends, flags = list(accumulate(counts)), bytes(map(bool, counts))
    owners = [member for member, count in enumerate(counts) for _ in range(count)]
    wanted = [chance.random() < 0.5 for _ in owners]
    chosen = Counter(owner for owner, is_wanted in zip(owners, wanted, strict=True) if is_wanted)
    forms = [RowCounts(counts), RowCounts(ends=ends)]
    if counts == [1] * len(counts):
        forms.append(RowCounts.single(len(counts)))
    for rows in [*forms, *(RowCounts.unpack(form.packed()) for form in forms)]:
        assert (list(rows.counts), list(rows.ends), rows.flags) == (counts, ends, flags)
        assert rows.starts == [end - count for end, count in zip(ends, counts, strict=True)]
        some = rows.where(bytes(wanted))
        assert list(some.counts) == [chosen[member] for member in range(len(counts))]
        assert list(rows.without(some).counts) == [count - chosen[member] for member, count in enumerate(counts)]


def column(words: dict[int, int], block: Block) -> int:
    """A word for each member: 0 for those not named."""
    return column_of([words.get(member, 0) for member in range(block.members)])


@pytest.mark.parametrize("seed", range(20))
def test_each_member_is_answered_when_its_own_edges_are(seed: int) -> None:
    chance, block = random.Random(seed), Block(1 << 20, 40 if seed % 4 else 1000)
    edges = {member: chance.sample(range(1, 1 << 60), 3) for member in range(block.members)}
    left = {member: list(found) for member, found in edges.items()}
    xors = {member: found[0] ^ found[1] ^ found[2] for member, found in edges.items()}
    tracked = TrackedBlock(block, column(xors, block), 1, {})
    answered: list[int] = []
    expected: list[int] = []
    given_up: set[int] = set()
    while any(left.values()):
        chosen = [member for member, found in left.items() if found and chance.random() < 0.6]
        if chance.random() < 0.2:
            lost = [member for member in tracked if chance.random() < 0.1]
            tracked.give_up(lost)
            given_up.update(lost)
        acks = {member: left[member].pop() for member in chosen}
        now = [member for member in chosen if not left[member] and member not in given_up]
        expected += now
        if chance.random() < 0.2:
            # Also of trees that were given up: what comes late for them changes nothing.
            answered += tracked.ack_some([(member, acks[member]) for member in chosen if tracked.is_open[member]])
        else:
            answered += tracked.ack(column(acks, block))
        assert answered == expected
        assert list(tracked) == [member for member in left if member not in answered and member not in given_up]
        assert len(tracked) == len(list(tracked))
    assert sorted(answered) == sorted(set(range(block.members)) - given_up)
