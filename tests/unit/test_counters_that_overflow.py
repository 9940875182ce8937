"""A counter or histogram that is told what it cannot hold says so in one line, and keeps what it has."""

from __future__ import annotations

from typing import Any

import pytest

from squall.engine.api.user_metrics import UserMetrics
from squall.engine.errors import ComponentError


@pytest.mark.parametrize("by", [2**70, -(2**70), 1.5, "a", None], ids=repr)
def test_a_counter_names_itself_the_value_and_what_is_allowed(by: Any) -> None:
    counter = UserMetrics().counter("bolt", 2, "seen")
    counter.inc(3)
    with pytest.raises(ComponentError) as refused:
        counter.inc(by)
    assert str(refused.value) == (
        f"counter 'seen' of bolt[2] is at 3 and cannot count {by!r} more; allowed: integers, with a count from "
        "-2**63 to 2**63 - 1"
    )
    assert counter.value == 3


def test_a_counter_that_is_full_keeps_its_count() -> None:
    counter = UserMetrics().counter("bolt", 2, "seen")
    counter.inc(2**63 - 1)
    with pytest.raises(ComponentError, match="cannot count 1 more"):
        counter.inc()
    counter.inc(-1)
    assert counter.value == 2**63 - 2


@pytest.mark.parametrize("value", ["a", None, 10**400], ids=["text", "none", "too big"])
def test_a_histogram_refuses_what_is_no_finite_number(value: Any) -> None:
    histogram = UserMetrics().histogram("bolt", 2, "size")
    with pytest.raises(ComponentError, match=r"a histogram cannot take .*; allowed: finite numbers"):
        histogram.update(value)
    assert histogram.count == 0
