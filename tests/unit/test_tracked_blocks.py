"""A block of trees answers as its trees would one by one, however acks, failures and deaths of it are mixed."""

from __future__ import annotations

import random

import pytest

from squall.engine.api.columns import Columns
from squall.engine.flow.blocks import Block, column_of
from squall.engine.tracking.blocks import TrackedBlock
from squall.engine.tracking.pending import OpenBlock

BLOCK = Block(1 << 20, 40)


def column(words: dict[int, int]) -> int:
    """A word for each member: 0 for those not named."""
    return column_of([words.get(member, 0) for member in range(BLOCK.members)])


@pytest.mark.parametrize("seed", range(20))
def test_each_member_is_answered_when_its_own_edges_are(seed: int) -> None:
    chance = random.Random(seed)
    edges = {member: chance.sample(range(1, 1 << 60), 3) for member in range(BLOCK.members)}
    left = {member: list(found) for member, found in edges.items()}
    xors = {member: found[0] ^ found[1] ^ found[2] for member, found in edges.items()}
    tracked = TrackedBlock(BLOCK, column(xors), 1, {})
    answered: list[int] = []
    expected: list[int] = []
    given_up: set[int] = set()
    while any(left.values()):
        chosen = [member for member, found in left.items() if found and chance.random() < 0.6]
        if chance.random() < 0.2:
            lost = [member for member in tracked if chance.random() < 0.1]
            tracked.give_up_many(lost)
            given_up.update(lost)
        acks = {member: left[member].pop() for member in chosen}
        now = [member for member in chosen if not left[member] and member not in given_up]
        expected += now
        if chance.random() < 0.2:
            # Also of trees that were given up: what comes late for them changes nothing.
            answered += tracked.ack_some([(member, acks[member]) for member in chosen if member in tracked])
        else:
            answered += tracked.ack(column(acks))
        assert answered == expected
        assert list(tracked) == [member for member in left if member not in answered and member not in given_up]
        assert len(tracked) == len(list(tracked))
    assert sorted(answered) == sorted(set(range(BLOCK.members)) - given_up)


@pytest.mark.parametrize("done", [[0], [999], [3, 4, 5], [7, 500, 998], list(range(0, 1000, 3)), list(range(1, 999))])
def test_members_that_are_processed_are_found_among_many(done: list[int]) -> None:
    block = Block(1 << 20, 1000)
    words = [1 << member % 64 for member in range(block.members)]
    for member in done:
        words[member] = 0
    tracked = TrackedBlock(block, column_of(words), 1, {})
    assert list(tracked.finished()) == done
    assert list(tracked.finished()) == []
    assert len(tracked) == block.members - len(done)


def test_open_messages_are_taken_out_once_each() -> None:
    rows = Columns((list(range(BLOCK.members)),), BLOCK.members)
    opened = OpenBlock(BLOCK, range(100, 100 + BLOCK.members), rows, "default", 0)
    assert opened.take(opened.open_of([3, 1])) == [103, 101]
    rest = opened.open_of(range(BLOCK.members))
    assert 3 not in rest
    assert 1 not in rest
    assert opened.take(rest) == [100 + member for member in rest]
    assert not opened.count
    assert not opened.open_of(range(BLOCK.members))
    assert opened.answered() == list(range(BLOCK.members))
