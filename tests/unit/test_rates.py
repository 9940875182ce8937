"""Rates of components between two looks at a topology."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec.structs import asdict, astuple

from squall.ui.charts import component_rates


def look(**changed: int) -> Mock:
    counts = {"tasks": 2, "executed": 1000, "emitted": 500, "acked": 900, "failed": 7, "execute_ns": 10**9}
    return Mock(components={"count": Mock(**counts | changed)})


def test_rates_latency_and_capacity_are_those_of_the_interval_and_not_of_the_whole_life() -> None:
    now = look(executed=1400, emitted=520, acked=1300, failed=8, execute_ns=3 * 10**9)
    assert asdict(component_rates(look(), now, 4.0)["count"]) == pytest.approx({
        "executed_per_sec": 100.0, "emitted_per_sec": 5.0, "acked_per_sec": 100.0, "failed_per_sec": 0.25,
        "execute_latency_ms": 5.0, "capacity": 0.25,
    })


@pytest.mark.parametrize(
    ("before", "now", "secs"),
    [
        (look(), look(), 0.0), (Mock(components={}), look(), 0.0),
        (look(), look(executed=10, emitted=1, acked=9, failed=0, execute_ns=100), 1.0),
    ],
    ids=["nothing happened", "it is new", "counts fell because tasks moved"],
)
def test_what_did_not_happen_is_zero(before: Mock, now: Mock, secs: float) -> None:
    assert set(astuple(component_rates(before, now, secs)["count"])) == {0.0}
