"""The smallest part that still fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from squall.chaos.campaign import smallest


@pytest.mark.parametrize("needed", [{5}, {0, 9}, {2, 3, 7}, set(range(10)), {9}])
def test_it_is_found(needed: set[int]) -> None:
    tried: list[list[int]] = []

    def fails(some: Sequence[int]) -> bool:
        tried.append(list(some))
        return needed <= set(some)

    assert set(smallest(range(10), fails, 200)) == needed
    assert len(tried) < 80


def test_nothing_is_tried_where_there_is_one() -> None:
    assert smallest([4], lambda some: pytest.fail("tried"), 10) == [4]


def test_what_is_found_when_the_tries_are_over_has_failed() -> None:
    tries = 0

    def fails(some: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        return 77 in some

    found = smallest(range(100), fails, 4)
    assert 77 in found
    assert 1 < len(found) < 100
    assert tries == 4
