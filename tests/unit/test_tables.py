"""Tables for people."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from squall.cli.tables import Grid, table


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    text = table(["name", "count", "ms"], [["a", 1, 0.5], ["longer", 12345, 10.0]])
    assert text.splitlines() == [
        "name     count     ms",
        "a            1   0.50",
        "longer  12,345  10.00",
    ]


def test_no_rows() -> None:
    assert table(["name", "state"], []) == "name  state"


LONG = "a-component-with-a-name-that-nobody-wants-to-read-twice"


def widest(grid: Grid, width: int) -> int:
    lines = grid.fitted(width, 1)
    return sum(max(map(cell_len, column)) for column in zip(*lines, strict=True)) + len(lines[0]) - 1


@pytest.mark.parametrize(
    "name", [LONG, "字" * 40, "\x1b[31m" * 20, "e\u0301" * 50], ids=["long", "wide", "hostile", "marks"]
)
def test_a_table_fits_the_window_and_numbers_stay_whole(name: str) -> None:
    grid = Grid(["component", "executed", "acked", "executors"], [[name, 9_999_999, 12_345_678, f"{name}, {name}"]])
    assert widest(grid, 60) <= 60
    (row,) = grid.fitted(60, 1)[1:]
    assert row[1:3] == ["9,999,999", "12.35M"]
    assert "…" in row[0]
    assert row[3].endswith("…")
    assert "\x1b" not in "".join(row)


def test_names_keep_their_beginning_and_their_end() -> None:
    (row,) = Grid(["name", "n"], [[LONG, 1]]).fitted(20, 1)[1:]
    assert row == ["a-compone…ad-twice", "1"]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (9_999_999, "9,999,999"), (10_000_000, "10M"), (999_949_999, "999.9M"), (1_234_567_890, "1.235G"),
        (2**63, "9.223E"), (None, "-"), (1.5, "1.50"), (float("nan"), "nan"), (float("inf"), "inf"),
        (-(10**8), "-100,000,000"),
    ],
)
def test_big_numbers_are_short_in_a_window(number: float | None, shown: str) -> None:
    grid = Grid(["n"], [[number]])
    assert grid.fitted(80, 1)[1:] == [[shown]]


def test_in_a_file_everything_is_whole() -> None:
    assert str(Grid(["name", "n"], [[LONG, 1_234_567_890]])).splitlines()[1] == f"{LONG}  1,234,567,890"
