"""What `--tolerance` may say, and what it means for a column."""

from __future__ import annotations

import pytest

from squall.engine.errors import UsageError
from squall.pipeline.tolerance import Tolerance, parse_tolerances


def test_amounts_are_joined_for_all_columns_and_for_one() -> None:
    found = parse_tolerances(["0.5", "1%", "p99=2", "a=b=3%", "0.25"])
    assert found.of("any") == Tolerance(0.25, 0.01)
    assert found.of("p99") == Tolerance(2, 0)
    assert found.of("a=b") == Tolerance(0, 0.03)


def test_none_is_given() -> None:
    assert not parse_tolerances([]).of("any")
    assert not parse_tolerances(["0"]).of("any")


@pytest.mark.parametrize("text", ["", "=1", "x=", "-1", "nan", "inf", "1e999", "%", "a=1%%", "one", "a=-0.1%"])
def test_others_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--tolerance is '.*'; allowed: a number from 0 \(0\.01\), a percentage"):
        parse_tolerances([text])
