"""Tables for people."""

from __future__ import annotations

from squall.cli.tables import table


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    text = table(["name", "count", "ms"], [["a", 1, 0.5], ["longer", 12345, 10.0]])
    assert text.splitlines() == [
        "name     count     ms",
        "a            1   0.50",
        "longer  12,345  10.00",
    ]


def test_no_rows() -> None:
    assert table(["name", "state"], []) == "name  state"
