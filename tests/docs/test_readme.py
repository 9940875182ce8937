"""The README's programs and commands do what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import Page
from tests.process.cli import ROOT, environment, squall

README = Page("README.md")
HELLO, LARGEST, FROM_PYTHON, *_ = README.of("python")


def test_the_largest_square(tmp_path: Path) -> None:
    """The first program is run by the tutorial, whose first page shows it too."""
    (tmp_path / "program.py").write_text(LARGEST)
    (tmp_path / "hello.py").write_text(HELLO)
    done = squall("run", tmp_path / "program.py", "--local")
    assert done.returncode == 0, done.stderr
    assert "the largest square is 81" in done.stdout + done.stderr
    assert "10 acked" in done.stdout


def test_hello_is_the_example_of_twelve_lines() -> None:
    example = (ROOT / "examples" / "hello_world.py").read_text().partition('"""\n\n')[2]
    assert "# hello.py\n" + example == HELLO
    assert sum(bool(line.strip()) for line in example.splitlines()) == 12


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(HELLO)
    done = subprocess.run(
        [sys.executable, "-c", FROM_PYTHON], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "\n10 " in f"\n{done.stdout}"


def test_commands() -> None:
    """Every `squall ...` line of the README, but the one of test_program, runs and succeeds."""
    assert len(README.commands) >= 3
    for command in README.commands:
        if "hello.py" not in command:
            done = squall(*command.split())
            assert done.returncode == 0, done.stderr
