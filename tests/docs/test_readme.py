"""The README's programs and commands do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.process.cli import ROOT, environment, squall

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


def test_hello(tmp_path: Path) -> None:
    for name, program in zip(("hello", "largest"), PROGRAMS, strict=False):
        (tmp_path / f"{name}.py").write_text(program)
    for mode in (("--workers", "2"), ("--local",)):
        for name, said in (("hello", "square=81>"), ("largest", "the largest square is 81")):
            done = squall("run", tmp_path / f"{name}.py", *mode)
            assert done.returncode == 0, done.stderr
            assert said in done.stdout + done.stderr
            assert "10 acked" in done.stdout


def test_hello_is_the_example_of_twelve_lines() -> None:
    example = (ROOT / "examples" / "hello_world.py").read_text().partition('"""\n\n')[2]
    assert PROGRAMS[0] == "# hello.py\n" + example
    assert sum(bool(line.strip()) for line in example.splitlines()) == 12


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(PROGRAMS[0])
    (tmp_path / "main.py").write_text(PROGRAMS[2])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "\n10 " in f"\n{done.stdout}"


def test_commands() -> None:
    """Every `squall ...` line of the README, but the one that is test_hello's, runs and succeeds."""
    lines = [line for language, text in BLOCKS if not language for line in text.splitlines()]
    commands = [line.split() for line in lines if line.startswith("squall ")]
    assert len(commands) >= 3
    for _, *arguments in commands:
        if "hello.py" not in arguments:
            done = squall(*arguments)
            assert done.returncode == 0, done.stderr
