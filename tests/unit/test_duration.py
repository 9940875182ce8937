"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from squall.engine.errors import UsageError
from squall.scheduler.common.duration import parse_duration_secs


@pytest.mark.parametrize(
    ("text", "secs"),
    [("30", 30), ("30s", 30), ("1.5s", 1.5), ("500ms", 0.5), ("5m", 300), ("2h", 7200), ("1e-3s", 1e-3)],
)
def test_forms(text: str, secs: float) -> None:
    assert parse_duration_secs(text) == pytest.approx(secs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not understood"), ("soon", "is not understood"), ("-1s", "is not understood"), ("nan", "is not"),
        ("inf", "is not understood"), ("0s", "more than 0"), ("1e999s", "more than 0 and at most"), ("٣s", "is not"),
        ("3d", "has an unknown unit 'd'; units are ms, s, m, h"), ("3S", "unknown unit 'S'"), ("1_0s", "is not"),
        ("9" * 5000, "more than 0 and at most"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match="duration ") as caught:
        parse_duration_secs(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200
