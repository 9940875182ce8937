"""The contiguous acked prefix (hazard H32: never commit past a hole)."""

from __future__ import annotations

import random

import pytest

from squall.engine.api.prefix import AckedPrefix


def test_in_order_each_ack_raises_it() -> None:
    prefix = AckedPrefix()
    assert prefix.committable == 0
    for offset in range(5):
        assert prefix.ack(offset)
        assert prefix.committable == offset + 1
    assert len(prefix.beyond) == 0


def test_a_hole_holds_everything_back() -> None:
    prefix = AckedPrefix(10)
    for offset in (11, 12, 14):
        assert not prefix.ack(offset)
    assert prefix.committable == 10
    assert len(prefix.beyond) == 3
    assert prefix.ack(10)
    assert prefix.committable == 13
    assert len(prefix.beyond) == 1


@pytest.mark.parametrize("again", [9, 10, 12])
def test_acking_again_changes_nothing(again: int) -> None:
    prefix = AckedPrefix(10)
    prefix.ack(10)
    prefix.ack(12)
    assert not prefix.ack(again)
    assert (prefix.committable, len(prefix.beyond)) == (11, 1)


def test_any_order_any_repeats_never_passes_a_hole(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        n = rng.randrange(1, 30)
        order = rng.choices(range(n), k=3 * n)
        prefix, acked = AckedPrefix(), set()
        for offset in order:
            before = prefix.committable
            rose = prefix.ack(offset)
            acked.add(offset)
            first_hole = next(k for k in range(n + 1) if k not in acked)
            assert prefix.committable == first_hole
            assert rose == (first_hole > before)
            assert len(prefix.beyond) == len(acked) - first_hole


def test_what_is_acked_past_a_hole_can_be_kept_and_taken_up_again() -> None:
    prefix = AckedPrefix()
    for offset in (0, 1, 3, 5):
        prefix.ack(offset)
    again = AckedPrefix(prefix.committable, prefix.beyond)
    assert [again.is_acked(offset) for offset in range(7)] == [True, True, False, True, False, True, False]
    again.ack(2)
    again.ack(4)
    assert (again.committable, again.beyond) == (6, [])
