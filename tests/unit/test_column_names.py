"""Two names are one column if Spark says so, and not as Unicode folds them."""

from __future__ import annotations

from pathlib import Path

from squall.pipeline.column_names import twins_among
from squall.pipeline.records import twice_in_header


def test_names_that_differ_in_more_than_case_are_two(tmp_path: Path) -> None:
    assert twins_among(["id", "name", "ID", "Name"]) == ("id", "ID")
    for first, second in (("\xdf", "ss"), ("\u03c3", "\u03c2"), ("\ufb01", "fi")):
        assert twins_among([first, second]) is None
        (tmp_path / "a.csv").write_text(f"{first},{second}\n")
        assert twice_in_header(str(tmp_path / "a.csv")) is None
