"""The program that docs/functions.md shows does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.process.cli import ROOT, squall

TEXT = (ROOT / "docs/functions.md").read_text()


@pytest.mark.parametrize("mode", [("--local",), ("--workers", "2")])
def test_the_command_writes_squares_and_the_rest(mode: tuple[str, ...], tmp_path: Path) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    [command] = re.findall(r"^squall (run .*)$", TEXT, re.MULTILINE)
    (tmp_path / "squares.py").write_text(program)
    verb, _, dashes, _ = command.split()
    done = squall(verb, tmp_path / "squares.py", *mode, dashes, tmp_path / "squares.txt")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "squares.txt").read_text().splitlines()
    assert sorted(lines) == ["0", "1 odd", "16", "3 odd", "36", "4", "5 odd", "64", "7 odd", "9 odd"]
