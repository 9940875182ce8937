"""The program that docs/functions.md shows does what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import Page
from tests.process.cli import squall


def test_the_command_writes_squares_and_the_rest(tmp_path: Path) -> None:
    page = Page("docs/functions.md")
    page.save(tmp_path)
    [command] = page.commands
    done = squall(*(str(tmp_path / word) if "squares" in word else word for word in command.split()))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "squares.txt").read_text().splitlines()
    assert sorted(lines) == ["0", "1 odd", "16", "3 odd", "36", "4", "5 odd", "64", "7 odd", "9 odd"]
